package main

import (
	"io"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/examples/internal/child"
	"github.com/etcdkit/etcdkit/examples/internal/progtest"
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
	var r outcome
	for try := 1; ; try++ {
		r = outcome{}
		status := progtest.New(t, "-endpoints", strings.Join(etcd.Endpoints(), ","), "-workers", "4", "-skew", "600ms", "-ttl", "2s", "-period", "7200ms").Result(&r)
		if status == 0 {
			break
		}
		if r.Stalled < 0.1 {
			t.Fatalf("status %d", status)
		}
		// Processes stood still, and two seconds of TTL are little.
		if try == 3 {
			t.Skip("the machine is too busy")
		}
	}
	want := 2
	if child.CanPause {
		want = 4
	}
	if !r.OK || r.Faults != want || r.Restarts != 4 || len(r.Schedlock) != 4 {
		t.Errorf("%+v", r)
	}
	for i, s := range r.Schedlock {
		lost := 0
		for _, n := range s.Lost {
			lost += n
		}
		switch s.Job {
		case heartbeat:
			if s.Starts != s.Ticks || r.Naive[i].Starts < 2*s.Ticks {
				t.Errorf("%+v, by name %+v", s, r.Naive[i])
			}
		case report:
			if s.Skipped == 0 {
				t.Errorf("%+v: it takes longer than its interval", s)
			}
		case billing:
			if lost != want/2 || s.Again != 0 {
				t.Errorf("%+v", s)
			}
		case backup:
			if lost != 0 || s.Again != want/2 {
				t.Errorf("%+v", s)
			}
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	progtest.New(t, "-workers", "3", "-skew", "500ms").Interrupted()
}

func TestEtcdThatIsNotThere(t *testing.T) {
	t.Parallel()
	progtest.New(t, "-endpoints", "127.0.0.1:1", "-timeout", "1s").Ends(1, "cron: not done after 1s")
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for args, ok := range map[string]bool{
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
	} {
		if _, err := parseFlags(strings.Fields(args), io.Discard); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}
