package main

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/examples/internal/child"
	"github.com/etcdkit/etcdkit/examples/internal/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// A crash of etcd interrupts no work, a lost lease no worker, and SIGTERM neither interrupts
// what has begun nor leaves a key of the session.
func TestOutageAndGracefulStop(t *testing.T) {
	if !child.CanPause {
		t.Skip("no SIGTERM here")
	}
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("an external cluster cannot be crashed")
	}
	p := progtest.New(t, "-endpoints", strings.Join(etcd.Endpoints(), ","))
	p.Stdout = nil
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(stdout)
	count := map[string]int{}
	complete := func(n int) { // waits until n more frames are complete
		t.Helper()
		for want := count["is complete"] + n; count["is complete"] < want; count[lines.Text()]++ {
			if !lines.Scan() {
				_ = p.Wait()
				t.Fatalf("the worker has ended: %v\n%s", count, &p.Err)
			}
		}
	}

	complete(3)
	if err := etcd.Crash(0); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	complete(9)
	leases, err := etcd.Client().Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases { // as after a long outage
		if err := etcd.ExpireLease(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
	}
	complete(9)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		count[lines.Text()]++
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &p.Err)
	}
	// The crash costs nothing, the lost lease the frames of its permits: three at most.
	interrupted, again := count["begins"]-count["is complete"], strings.Count(p.Err.String(), "rendered again")
	if again < 1 || again > 3 || interrupted > again {
		t.Errorf("%v, and %d rendered again\n%s", count, again, &p.Err)
	}
	left, err := etcd.Client().Leases(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Leases) > 0 {
		t.Errorf("leases are left: %v", left.Leases)
	}
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	err := run(t.Context(), "127.0.0.1:1")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want an error that names what cannot be reached", err)
	}
}
