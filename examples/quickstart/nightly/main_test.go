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
	"github.com/etcdkit/etcdkit/observe"
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
	ran := 0
	sess, job := instance(t, embedtest.Start(t, nil), nil, schedlock.Periods(200*time.Millisecond), func(context.Context, *schedlock.Run) error {
		if ran++; ran == 3 {
			sigterm()
		}
		return nil
	})
	if err := loop(ctx, sess, job); err != nil {
		t.Error(err)
	}
	if ran != 3 {
		t.Errorf("it ran %d times, want 3", ran)
	}
}

// instance is one of several that have the job.
func instance(t *testing.T, etcd *embedtest.Cluster, hooks []observe.Hooks, s schedlock.Schedule, f schedlock.Func, opts ...schedlock.JobOption) (*concurrency.Session, *schedlock.Job) {
	t.Helper()
	sess, err := concurrency.NewSession(t.Context(), etcd.Client(), "nightly", &concurrency.SessionOptions{Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	lk, err := schedlock.New(sess, &schedlock.Options{Done: done, Lost: lost})
	if err != nil {
		t.Fatal(err)
	}
	job, err := lk.Job("report", s, f, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return sess, job
}

// hourly is a schedule with a fire time that comes soon.
type hourly struct{ first time.Time }

func (h hourly) Next(after time.Time) time.Time {
	if after.Before(h.first) {
		return h.first
	}
	return h.first.Add(after.Sub(h.first).Truncate(time.Hour) + time.Hour)
}

// With Retries the instance that does not run the job waits for the other's run: on SIGTERM it ends all the same.
func TestStandbyEndsOnSIGTERM(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts an etcd, and waits for a fire time")
	}
	etcd := embedtest.Start(t, nil)
	soon := hourly{time.Now().Add(2 * time.Second).Truncate(time.Second)}
	running, finish := make(chan int, 2), make(chan struct{})
	var claims [2]chan struct{}
	var sigterms [2]context.CancelFunc
	var ended [2]chan error
	for i := range 2 {
		claims[i], ended[i] = make(chan struct{}, 10), make(chan error, 1)
		var ctx context.Context
		ctx, sigterms[i] = context.WithCancel(t.Context())
		hooks := []observe.Hooks{{Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			if c.Op == observe.Claim {
				claims[i] <- struct{}{}
			}
			return ctx, nil
		}}}
		sess, job := instance(t, etcd, hooks, soon, func(context.Context, *schedlock.Run) error {
			running <- i
			<-finish
			return nil
		}, schedlock.Retries(1), schedlock.AtMost(time.Minute))
		go func() { ended[i] <- loop(ctx, sess, job) }()
	}
	runs := <-running
	<-claims[1-runs]
	sigterms[1-runs]()
	select {
	case err := <-ended[1-runs]:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the instance on standby waits for the other's run")
	}
	sigterms[runs]()
	close(finish)
	if err := <-ended[runs]; err != nil {
		t.Error(err)
	}
}
