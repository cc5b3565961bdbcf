package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"

	"github.com/etcdkit/etcdkit/examples/internal/child"
)

// asFleet makes this test binary be the program, with its own flags. The workers
// that it starts inherit it.
const asFleet = "FLEET_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asFleet) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the fleet as a process of its own.
func program(t *testing.T, env string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asFleet+"=1", "TMPDIR="+t.TempDir(), env)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// outcome runs the program and reads its last line.
func outcome(t *testing.T, env string, args ...string) (status int, r report) {
	t.Helper()
	cmd, stdout, stderr := program(t, env, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("the last line is no JSON: %v\nstdout: %s\nstderr: %s", err, stdout, stderr)
	}
	t.Logf("%s%s", stderr, stdout)
	nothingIn(t, cmd)
	return cmd.ProcessState.ExitCode(), r
}

// nothingIn checks that the program has left no temporary files.
func nothingIn(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	for _, e := range cmd.Env {
		if dir, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
				t.Errorf("temporary files are left: %q", left)
			}
		}
	}
}

func TestFleet(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "out.svg")
	status, r := outcome(t, "", "-executions", "20", "-kill", "0.2", "-ttl", "2s", "-timeline", picture)
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

// On an etcd of the user's own the fleet leaves nothing.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("other fleets may be at work on the external cluster")
	}
	count := func() int64 {
		resp, err := etcd.Client().Get(t.Context(), "/etcdkit/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	before := count()
	status, r := outcome(t, "", "-endpoints", strings.Join(etcd.Endpoints(), ","), "-executions", "4", "-workers", "2", "-limit", "1", "-kill", "0.5", "-ttl", "1s")
	if status != 0 || r.Peak != 1 || r.Ends[killed] != 2 {
		t.Errorf("status %d, %+v", status, r)
	}
	if after := count(); after != before {
		t.Errorf("%d keys before, %d after", before, after)
	}
}

// The referee must be able to fail, and the program with it.
func TestRefereeSeesACrowd(t *testing.T) {
	t.Parallel()
	status, r := outcome(t, sabotageEnv+"=crowd", "-executions", "20", "-kill", "0", "-ttl", "1s")
	if status != 1 || r.OK || r.Peak <= r.Limit || r.Succeeded != 20 {
		t.Errorf("status %d, %+v", status, r)
	}
}

func TestRefereeSeesDeafWorkers(t *testing.T) {
	t.Parallel()
	status, r := outcome(t, sabotageEnv+"=deaf", "-executions", "10", "-kill", "0", "-ttl", "1s")
	if status != 1 || r.OK || r.Violations == 0 {
		t.Errorf("status %d, %+v", status, r)
	}
	if !strings.Contains(strings.Join(r.First, "\n"), "after the permit's deadline") {
		t.Errorf("violations: %q", r.First)
	}
}

func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted from outside here")
	}
	t.Parallel()
	cmd, stdout, stderr := program(t, "", "-workers", "4")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // anywhere in the run
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stderr.String(), "all processes have ended") {
		t.Errorf("status %d, stdout %s, stderr %s", code, stdout, stderr)
	}
	nothingIn(t, cmd)
}

// A file that cannot be written is told before the run, not after it.
func TestOutputsComeFirst(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "no such folder", "out")
	for _, flag := range []string{"-timeline", "-history"} {
		cmd, stdout, stderr := program(t, "", flag, nowhere, "-executions", "1")
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "no such folder") || stdout.Len() > 0 {
			t.Errorf("%s: status %d, stdout %s, stderr %s", flag, cmd.ProcessState.ExitCode(), stdout, stderr)
		}
	}
}

// A run that fails leaves its history, in place of what stood there.
func TestHistoryOfAFailedRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(file, bytes.Repeat([]byte("old\n"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _, stderr := program(t, "", "-history", file, "-timeout", "2s")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "not done after 2s") {
		t.Errorf("status %d, stderr %s", cmd.ProcessState.ExitCode(), stderr)
	}
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
	if !bytes.Contains(written, []byte(evReady)) {
		t.Errorf("%d bytes of history, stderr %s", len(written), stderr)
	}
}

func TestEtcdThatIsNotThere(t *testing.T) {
	t.Parallel()
	cmd, _, stderr := program(t, "", "-endpoints", "127.0.0.1:1", "-timeout", "1s")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "fleet: ") {
		t.Errorf("status %d, stderr %s", cmd.ProcessState.ExitCode(), stderr)
	}
}
