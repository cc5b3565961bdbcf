package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// outcome runs the fleet with an environment variable, and returns its exit status and report.
func outcome(t *testing.T, env string, args ...string) (status int, r report) {
	t.Helper()
	p := progtest.New(t, args...)
	p.Env = append(p.Env, env)
	status = p.Result(&r)
	return status, r
}

func TestFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a fleet and waits for leases: 7 s")
	}
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "out.svg")
	var r report
	p := progtest.New(t, "-executions", "20", "-kill", "0.2", "-ttl", "2s", "-timeline", picture, "-metrics", "127.0.0.1:0")
	p.Stderr = progtest.Scrape(t, &p.Err, `etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="executions",etcdkit_namespace="fleet-\w+"\} [1-9]`,
		`etcdkit_acquire_duration_seconds_count\{.*instance="worker-\d+"\} [1-9]`)
	status := p.Result(&r)
	if status != 0 || !r.OK || r.Succeeded != 20 || r.Peak > 5 || r.Peak < 2 || r.LeftBehind != 0 {
		t.Errorf("status %d, %+v", status, r)
	}
	if r.Ends[killed] != 4 || r.Ends[failed] != 1 || r.Ends[panicked] != 1 || r.Ends[stuck] < 1 || child.CanPause && r.Ends[paused] != 1 {
		t.Errorf("not everything happened: %v", r.Ends)
	}
	if svg, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(svg, []byte("<svg")) {
		t.Errorf("timeline: %v, %.20q", err, svg)
	}
}

// A run on an external etcd leaves no keys.
func TestEndpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for leases: 14 s")
	}
	t.Parallel()
	etcd := progtest.Etcd(t)
	status, r := outcome(t, "", etcd.Flags("-executions", "4", "-workers", "2", "-limit", "1", "-kill", "0.5", "-ttl", "2s")...)
	if status != 0 || r.Peak != 1 || r.Ends[killed] != 2 {
		t.Errorf("status %d, %+v", status, r)
	}
}

// If the limit does not hold, the referee detects it and the program fails.
func TestRefereeSeesTooManyWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a fleet: 5 s")
	}
	t.Parallel()
	status, r := outcome(t, sabotageEnv+"=overadmit", "-executions", "20", "-kill", "0", "-ttl", "3s")
	if status != 1 || r.OK || r.Peak <= r.Limit || r.Succeeded != 20 {
		t.Errorf("status %d, %+v", status, r)
	}
}

func TestRefereeSeesUncheckedPermits(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a fleet: 6 s")
	}
	t.Parallel()
	status, r := outcome(t, sabotageEnv+"=unchecked", "-executions", "10", "-kill", "0", "-ttl", "1s")
	if status != 1 || r.OK || r.Violations == 0 {
		t.Errorf("status %d, %+v", status, r)
	}
	if !strings.Contains(strings.Join(r.First, "\n"), "after the permit's deadline") {
		t.Errorf("violations: %q", r.First)
	}
}

// TestFrame: the program as its user runs it.
func TestFrame(t *testing.T) { progtest.Frame(t, "fleet", "-workers", "4") }

// A file that cannot be written fails the program before the run.
func TestOutputsComeFirst(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "no such folder", "out")
	for _, flag := range []string{"-timeline", "-history"} {
		p := progtest.New(t, flag, nowhere, "-executions", "1")
		p.Ends(1, "no such folder")
		if p.Out.Len() > 0 {
			t.Errorf("%s: stdout %s", flag, &p.Out)
		}
	}
}

// A run that fails writes its history, and replaces the old content of the file.
func TestHistoryOfAFailedRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a fleet for 10 s")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(file, bytes.Repeat([]byte("old\n"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for timeout := 10 * time.Second; ; timeout *= 4 {
		p := progtest.New(t, "-history", file, "-executions", "10000000", "-timeout", timeout.String())
		p.Ends(1, "not done after "+timeout.String())
		written, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(written) {
			var e event
			if err := json.Unmarshal(line, &e); err != nil || e.Kind == "" {
				t.Fatalf("%q: %v", line, err)
			}
		}
		if bytes.Contains(written, []byte(evReady)) {
			return
		}
		if timeout > time.Minute {
			t.Fatalf("%d bytes of history, stderr %s", len(written), &p.Err)
		}
		t.Logf("no process was ready within %v", timeout)
	}
}
