package main

import (
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main, childEnv) }

// published are metrics that scrapes of a run with -metrics show: of the state in etcd, and of what a process reports.
var published = []string{
	`etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="search",etcdkit_namespace="pods-\w+"\} [1-9]`,
	`etcdkit_acquire_duration_seconds_count\{.*instance="[^"]+"\} [1-9]`,
}

// run is a run in this process; the instances and the downstream service are processes of their own.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	return progtest.Run(t, parseFlags, demonstrate, published, args...)
}

// kept fails the test unless every promise was kept, in that many rows.
func kept(t *testing.T, o outcome, rows int) {
	t.Helper()
	broken := progtest.Broken(o.Violations, ": answers with ") // etcd's answers may come too late for a request
	if len(broken) > 0 || len(o.Rows) != rows || o.OK != (len(o.Violations) == 0) {
		t.Errorf("%d rows, want %d: %q", len(o.Rows), rows, broken)
	}
}

func TestPods(t *testing.T) {
	if testing.Short() {
		t.Skip("requests wait for 4 s, and a lease expires: 15 s")
	}
	t.Parallel()
	kept(t, run(t, "-only", "burst|killed", "-metrics", "127.0.0.1:0"), 3)
}

func TestLimitChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("requests wait for 4 s: 12 s")
	}
	t.Parallel()
	kept(t, run(t, "-only", "changed"), 3)
}

func TestPaused(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease: 12 s")
	}
	if !child.CanPause {
		t.Skip("this system cannot pause a process")
	}
	t.Parallel()
	kept(t, run(t, "-only", "paused"), 2)
}

// TestEtcdStopped: each outage policy keeps its bound.
func TestEtcdStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd is gone for longer than a lease: 15 s")
	}
	for _, policy := range outages {
		t.Run(policy.name, func(t *testing.T) {
			t.Parallel()
			o := run(t, "-only", "stopped, "+policy.name)
			kept(t, o, 2)
			if bound := policy.bound(o.Limit); bound != o.Rows[0].Bound {
				t.Errorf("the bound is %d, want %d", o.Rows[0].Bound, bound)
			}
		})
	}
}

// On an etcd of the user's own nothing is left, and no member is stopped.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	etcd := progtest.Etcd(t)
	o := run(t, etcd.Flags("-only", "steady|stopped", "-ttl", "30s")...)
	kept(t, o, 1)
	if len(o.Skipped) != len(outages) {
		t.Errorf("skipped: %q", o.Skipped)
	}
}

// TestFrame: the program as its user runs it.
func TestFrame(t *testing.T) { progtest.Frame(t, "pods") }

func TestFlags(t *testing.T) {
	t.Parallel()
	progtest.Flags(t, parseFlags, map[string]bool{
		"":              true,
		"-limit 4":      true,
		"-limit 3":      false,
		"-limit 11":     false, // too few clients
		"-clients 1001": false,
		"-ttl 2s":       true,
		"-ttl 1s":       false,
		"-ttl 2500ms":   false,
		"-timeout 0s":   false,
		"-only burst":   true,
		"-only (":       false,
		"more":          false,
	})
}
