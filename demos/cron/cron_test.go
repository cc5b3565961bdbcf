package main

import (
	"fmt"
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// The short form: all that happens in the long one, on an etcd of the user's own, on which
// nothing is left.
func TestCron(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for fire times: 30 s")
	}
	t.Parallel()
	etcd := progtest.Etcd(t)
	want := 2
	if child.CanPause {
		want = 4
	}
	for try := 1; ; try++ {
		var r outcome
		p := progtest.New(t, etcd.Flags("-workers", "4", "-skew", "600ms", "-ttl", "2s", "-period", "7200ms", "-metrics", "127.0.0.1:0")...)
		p.Stderr = progtest.Scrape(t, &p.Err, `etcdkit_job_last_run_timestamp_seconds\{etcdkit_kind="job",etcdkit_name="heartbeat",etcdkit_namespace="cron-\w+"\}`, `etcdkit_sessions\{etcdkit_namespace="cron-\w+"\} [1-9]`,
			`etcdkit_claim_duration_seconds_count\{.*instance="[^"]+"\} [1-9]`)
		status := p.Result(&r)
		wrong := r.unlike(want)
		switch {
		case len(r.Violations) > 0: // the judge has excused what a standstill explains
			t.Fatalf("status %d: %q", status, r.Violations)
		case status == 0 && (wrong == "" || r.Excused > 0):
			return // with standstills only the promises are compared
		case r.Stalled < 0.1:
			t.Fatalf("status %d: %s", status, wrong)
		case try == 3:
			t.Skipf("the machine is too busy for a TTL of 2 s: it was stopped for %g s", r.Stalled)
		}
	}
}

// unlike returns how an outcome differs from that of a machine that is not stopped.
func (o outcome) unlike(faults int) (wrong string) {
	if o.Faults != faults || o.Restarts != 4 || len(o.Schedlock) != 4 {
		return fmt.Sprintf("%+v", o)
	}
	for i, s := range o.Schedlock {
		lost, ok := 0, true
		for _, n := range s.Lost {
			lost += n
		}
		switch s.Job {
		case heartbeat:
			ok = s.Starts == s.Ticks && o.Naive[i].Starts >= 2*s.Ticks
		case report:
			ok = s.Skipped > 0 // it takes longer than its interval
		case billing:
			ok = lost == faults/2 && s.Again == 0
		case backup:
			ok = lost == 0 && s.Again == faults/2
		}
		if !ok {
			wrong += fmt.Sprintf("%+v, by name %+v\n", s, o.Naive[i])
		}
	}
	return wrong
}

// TestFrame: the program as its user runs it.
func TestFrame(t *testing.T) { progtest.Frame(t, "cron", "-workers", "3", "-skew", "500ms") }

func TestFlags(t *testing.T) {
	t.Parallel()
	progtest.Flags(t, parseFlags, map[string]bool{
		"":                               true,
		"-skew 0s":                       true,
		"-workers 4 -skew 2s":            false, // more than the shortest interval between two clocks
		"-workers 4 -skew 2s -period 8s": false,
		"-workers 2":                     false,
		"-skew -1s":                      false,
		"-skew 5s":                       false,
		"-ttl 1500ms":                    false,
		"-ttl 5s":                        false,
		"-ttl 5s -period 20s":            true,
		"-period 7777us":                 false,
		"-timeout 0s":                    false,
		"more":                           false,
	})
}
