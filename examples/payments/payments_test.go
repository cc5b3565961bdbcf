package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// asPayments makes this test binary be the program, with its own flags.
const asPayments = "PAYMENTS_TEST_MAIN"

func TestMain(m *testing.M) {
	switch {
	case isChild():
		childMain()
	case os.Getenv(asPayments) != "":
		main()
	default:
		embedtest.Main(m) // and looks for goroutines that are left
	}
}

// run is a run in this process; servers and provider are processes of their own.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	c, err := parseFlags(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var progress, out bytes.Buffer
	o, err := demonstrate(t.Context(), c, &progress)
	if errors.Is(err, embedtest.ErrExternal) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	o.write(&out)
	t.Logf("%s%s", &progress, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last outcome
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatalf("the last line is no JSON: %v", err)
	}
	return last
}

func charged(r report) (orders, charges int) {
	for _, t := range r.Rows {
		orders, charges = orders+t.Orders, charges+t.Orders*t.Charges
	}
	return orders, charges
}

// The short form, without what only takes time.
func TestPayments(t *testing.T) {
	t.Parallel()
	const only = "refused|wait$|out of service|client|body|server killed, |leader|no guard|each process|marker, store"
	o := run(t, "-orders", "4", "-only", only)
	if !o.OK || len(o.Violations) > 0 || len(o.Skipped) > 0 || len(o.Phases) != 8 || len(o.Others) != 3 {
		t.Errorf("%d phases, %d other ways, skipped %q: %q", len(o.Phases), len(o.Others), o.Skipped, o.Violations)
	}
	for _, r := range o.Phases {
		if orders, charges := charged(r); orders == 0 || charges != orders {
			t.Errorf("%s: %d orders, %d charges", r.Name, orders, charges)
		}
	}
	for _, r := range o.Others {
		if orders, charges := charged(r); charges <= orders || len(r.Wrong) == 0 {
			t.Errorf("%s: %d orders, %d charges: the experiment shows nothing", r.Name, orders, charges)
		}
	}
}

// On an etcd of the user's own nothing is left, and no member is stopped.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("others may be at work on the external cluster")
	}
	count := func() int64 {
		resp, err := etcd.Client().Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	before := count()
	o := run(t, "-endpoints", strings.Join(etcd.Endpoints(), ","), "-orders", "2", "-only", "refused|leader|majority")
	if !o.OK || len(o.Phases) != 1 || len(o.Skipped) != 2 {
		t.Errorf("%+v", o)
	}
	if after := count(); after != before {
		t.Errorf("%d keys before, %d after", before, after)
	}
}

// program is the demonstration as a process of its own.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asPayments+"=1", "TMPDIR="+t.TempDir())
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted from outside here")
	}
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("it breaks an etcd of its own")
	}
	t.Parallel()
	cmd, stdout, stderr := program(t)
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
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(stderr.String(), "payments: not done after 1s") {
		t.Errorf("%v, stderr %s", err, stderr)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for args, ok := range map[string]bool{
		"":             true,
		"-orders 1":    true,
		"-orders 0":    false,
		"-ttl 2s":      true,
		"-ttl 1s":      false,
		"-ttl 2500ms":  false,
		"-timeout 0s":  false,
		"-only marker": true,
		"-only (":      false,
		"more":         false,
	} {
		if _, err := parseFlags(strings.Fields(args), io.Discard); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}
