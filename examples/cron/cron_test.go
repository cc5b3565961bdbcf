package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// asCron makes this test binary be the program, with its own flags. The workers that it
// starts inherit it.
const asCron = "CRON_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asCron) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the demonstration as a process of its own.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asCron+"=1", "TMPDIR="+tmp)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
			t.Errorf("temporary files are left: %q", left)
		}
	})
	return cmd, stdout, stderr
}

// The short form: all that happens in the long one, on an etcd of the user's own, on which
// nothing is left.
func TestCron(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("others may be at work on the external cluster")
	}
	count := func() int64 {
		resp, err := etcd.Client().Get(t.Context(), "/etcdkit/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	before := count()
	var r outcome
	for try := 1; ; try++ {
		cmd, stdout, stderr := program(t, "-endpoints", strings.Join(etcd.Endpoints(), ","), "-workers", "4", "-skew", "600ms", "-ttl", "2s", "-period", "7200ms")
		err := cmd.Run()
		t.Logf("%s%s", stderr, stdout)
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		r = outcome{}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
			t.Fatalf("the last line is no JSON: %v", err)
		}
		if err == nil {
			break
		}
		if r.Stalled < 0.1 {
			t.Fatal(err)
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
	if after := count(); after != before {
		t.Errorf("%d keys before, %d after", before, after)
	}
}

func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted from outside here")
	}
	t.Parallel()
	cmd, stdout, stderr := program(t, "-workers", "3", "-skew", "500ms")
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
}

func TestEtcdThatIsNotThere(t *testing.T) {
	t.Parallel()
	cmd, _, stderr := program(t, "-endpoints", "127.0.0.1:1", "-timeout", "1s")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr.String(), "cron: not done after 1s") {
		t.Errorf("%v, stderr %s", err, stderr)
	}
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
