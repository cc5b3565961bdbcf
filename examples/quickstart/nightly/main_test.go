package main

import (
	"bufio"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// The program waits for half past two, or for the moment at which the clock leaves that out, and ends on SIGTERM.
func TestProgram(t *testing.T) {
	if !child.CanPause {
		t.Skip("no SIGTERM here")
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	p := progtest.New(t)
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
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if _, at, ok := strings.Cut(lines.Text(), "the next run is at "); ok {
			next, err := time.Parse("2006-01-02 15:04:05 -0700 MST", at)
			if hour := next.In(berlin).Format("15:04"); err != nil || hour != "02:30" && hour != "03:00" {
				t.Errorf("%s: %s in Berlin, %v", lines.Text(), hour, err)
			}
			_ = p.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// The loop runs a job at its fire times, until SIGTERM.
func TestLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts an etcd, and waits for three fire times")
	}
	ctx, sigterm := context.WithCancel(t.Context())
	defer sigterm()
	sess, err := concurrency.NewSession(ctx, embedtest.Start(t, nil).Client(), "nightly", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(context.WithoutCancel(ctx))
	lk, err := schedlock.New(sess, &schedlock.Options{Done: done, Lost: lost})
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	job, err := lk.Job("report", schedlock.Periods(200*time.Millisecond), func(context.Context, *schedlock.Run) error {
		if ran++; ran == 3 {
			sigterm()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	loop(ctx, job)
	if ran != 3 {
		t.Errorf("it ran %d times, want 3", ran)
	}
}
