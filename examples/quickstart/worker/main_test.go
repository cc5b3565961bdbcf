package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
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
	p.Stderr = nil
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(stderr)
	var begun, completed, again int
	next := func() (ok bool) { // reads a line of the log
		ok = lines.Scan()
		fmt.Fprintln(&p.Err, lines.Text())
		switch text := lines.Text(); {
		case strings.HasSuffix(text, "a frame begins"):
			begun++
		case strings.HasSuffix(text, "a frame is complete"):
			completed++
		case strings.Contains(text, "rendered again"):
			again++
		}
		return ok
	}
	complete := func(n int) { // waits until n more frames are complete
		t.Helper()
		for want := completed + n; completed < want; {
			if !next() {
				_ = p.Wait()
				t.Fatalf("the worker has ended:\n%s", &p.Err)
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
	for next() {
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &p.Err)
	}
	// The crash costs nothing, the lost lease the frames of its permits: three at most.
	if again < 1 || again > 3 || begun-completed > again {
		t.Errorf("%d begun, %d completed, %d rendered again\n%s", begun, completed, again, &p.Err)
	}
	left, err := etcd.Client().Leases(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Leases) > 0 {
		t.Errorf("leases are left: %v", left.Leases)
	}
}

// With -metrics the program shows what it holds and what its session reports, and stops as without.
func TestMetrics(t *testing.T) {
	if !child.CanPause {
		t.Skip("no SIGTERM here")
	}
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("other programs use its namespace meanwhile")
	}
	p := progtest.New(t, "-metrics", "127.0.0.1:0")
	scraper := progtest.Scrape(t, &p.Err, `etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="render",etcdkit_namespace="quickstart"\} [1-3]`,
		`etcdkit_acquire_duration_seconds_count\{.*etcdkit_name="render",.*etcdkit_result="granted"\} [1-9]`)
	p.Stderr = scraper
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-scraper.Seen:
	case <-time.After(time.Minute): // the scraper reports it
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &p.Err)
	}
}

// An address of -metrics that is in use is refused before the program starts.
func TestMetricsInUse(t *testing.T) { progtest.New(t).MetricsInUse() }

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) { progtest.WithoutEtcd(t, run) }
