package schedlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// A17: a call that ends because its caller's ctx has ended returns the ctx's error. A cause that
// is another session's ErrClosed neither masks that nor is taken for the end of this session.
func TestCtxOfAnotherSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(&concurrency.SessionOptions{TTL: 300 * time.Second}, nil)
	job, err := in.Job("cron", grid(time.Hour), nothing)
	require.NoError(t, err)
	locker, err := gocronlock.New[gocronLock](in.Locker, time.Hour)
	require.NoError(t, err)
	end := make(chan struct{})
	started, done := do(ctxT(t), in.Locker, "busy", end, schedlock.Tick(tick(1)), schedlock.Retries(1))
	r := got(t, started, "it starts")
	// A call for the same tick is on standby until the run has ended.
	standing, cancel := context.WithCancelCause(ctxT(t))
	_, waits := do(standing, in.Locker, "busy", nil, schedlock.Tick(tick(1)), schedlock.Retries(1))
	require.Eventually(t, func() bool { return in.client.Requests()["Txn"] > 1 }, soon, 20*time.Millisecond)
	held, err := locker.Lock(ctxT(t), "held")
	require.NoError(t, err)

	isCtxs := func(t *testing.T, want, err error) {
		t.Helper()
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, schedlock.ErrClosed)
	}
	in.client.BlackHole()
	defer in.client.Heal()
	cancel(concurrency.ErrClosed)
	isCtxs(t, context.Canceled, got(t, waits, "the call on standby").err)
	calls := map[string]func(ctx context.Context) error{
		"Do": func(ctx context.Context) error { _, err := in.Do(ctx, "job", nothing); return err },
		"Tick": func(ctx context.Context) error {
			_, err := in.Do(ctx, "job2", nothing, schedlock.Tick(tick(1)))
			return err
		},
		"AtLeast": func(ctx context.Context) error {
			_, err := in.Do(ctx, "job3", nothing, schedlock.AtLeast(time.Second))
			return err
		},
		"LateBy": func(ctx context.Context) error {
			_, err := in.Do(ctx, "job4", nothing, schedlock.Every(time.Hour), schedlock.LateBy(time.Hour))
			return err
		},
		"RunContext": func(ctx context.Context) error { _, err := job.RunContext(ctx); return err },
		"Trigger":    func(ctx context.Context) error { _, err := job.Trigger(ctx); return err },
		"History":    func(ctx context.Context) error { _, err := in.History(ctx, "job"); return err },
		"Get":        func(ctx context.Context) error { _, err := in.Get(ctx, "job", tick(1)); return err },
		"Status":     func(ctx context.Context) error { _, err := in.Status(ctx, "job"); return err },
		"Jobs":       func(ctx context.Context) error { _, err := in.Jobs(ctx); return err },
		"Pause":      func(ctx context.Context) error { return in.Pause(ctx, "busy", "") },
		"Resume":     func(ctx context.Context) error { return in.Resume(ctx, "busy") },
		"Unlock":     func(ctx context.Context) error { return in.Unlock(ctx, "busy", "") },
		"Check":      r.Check,
		"Watch": func(ctx context.Context) (err error) {
			for _, err = range in.Watch(ctx, "busy") {
			}
			return err
		},
		"Lock":   func(ctx context.Context) error { _, err := locker.Lock(ctx, "other"); return err },
		"unlock": held.Unlock,
	}
	for name, call := range calls {
		for how, begin := range map[string]func() (context.Context, context.CancelFunc, error){
			"canceled": func() (context.Context, context.CancelFunc, error) {
				ctx, cancel := context.WithCancelCause(ctxT(t))
				time.AfterFunc(20*time.Millisecond, func() { cancel(concurrency.ErrClosed) })
				return ctx, func() { cancel(nil) }, context.Canceled
			},
			"canceled before": func() (context.Context, context.CancelFunc, error) {
				ctx, cancel := context.WithCancelCause(ctxT(t))
				cancel(concurrency.ErrClosed)
				return ctx, func() {}, context.Canceled
			},
			"timed out": func() (context.Context, context.CancelFunc, error) {
				ctx, cancel := context.WithTimeoutCause(ctxT(t), 20*time.Millisecond, concurrency.ErrClosed)
				return ctx, cancel, context.DeadlineExceeded
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				ctx, cancel, want := begin()
				defer cancel()
				isCtxs(t, want, call(ctx))
			})
		}
	}
	in.client.Heal()
	close(end)
	require.NoError(t, got(t, done, "the run").err)
	require.NoError(t, held.Unlock(ctxT(t)))
	require.NoError(t, in.sess.Close(ctxT(t)))
	_, err = in.Do(ctxT(t), "job", nothing)
	require.ErrorIs(t, err, schedlock.ErrClosed)
	require.False(t, errors.Is(err, context.Canceled), err)
}

// A17: the same for the elector of gocron.
func TestElectorCtxOfAnotherSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(patient(), nil)
	el, err := concurrency.NewElection(s.sess, "e")
	require.NoError(t, err)
	e, err := gocronlock.NewElector(el)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.IsLeader(ctxT(t)) == nil }, soon, 20*time.Millisecond)
	s.client.BlackHole()
	ctx, cancel := context.WithCancelCause(ctxT(t))
	cancel(concurrency.ErrClosed)
	err = e.Close(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, schedlock.ErrClosed)
	s.client.Heal()
	require.NoError(t, e.Close(ctxT(t)))
}

// N5: the error of a call whose deadline has passed says whether it waited for another run or
// for etcd.
func TestDeadlineSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in, other := f.instance(&concurrency.SessionOptions{TTL: 300 * time.Second}, nil), f.instance(nil, nil)
	retries := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1)}
	end := make(chan struct{})
	started, done := do(ctxT(t), other.Locker, "busy", end, retries...)
	got(t, started, "it starts")
	within := func(d time.Duration, call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctxT(t), d)
		defer cancel()
		return call(ctx)
	}
	err := within(time.Second, func(ctx context.Context) error {
		_, err := in.Do(ctx, "busy", nothing, retries...)
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, schedlock.ErrUnavailable)
	require.ErrorContains(t, err, "context deadline exceeded: the run of this tick by "+other.sess.Owner()+" had not ended")

	in.client.BlackHole()
	defer in.client.Heal()
	var calls sync.WaitGroup
	for name, call := range map[string]func(ctx context.Context) error{
		"Do": func(ctx context.Context) error { _, err := in.Do(ctx, "job", nothing); return err },
		"Tick": func(ctx context.Context) error {
			_, err := in.Do(ctx, "job2", nothing, schedlock.Tick(tick(1)))
			return err
		},
		"AtLeast": func(ctx context.Context) error {
			_, err := in.Do(ctx, "job3", nothing, schedlock.AtLeast(time.Second))
			return err
		},
		"Retries": func(ctx context.Context) error { _, err := in.Do(ctx, "busy", nothing, retries...); return err },
		"History": func(ctx context.Context) error { _, err := in.History(ctx, "job"); return err },
		"Get":     func(ctx context.Context) error { _, err := in.Get(ctx, "job", tick(1)); return err },
		"Status":  func(ctx context.Context) error { _, err := in.Status(ctx, "job"); return err },
		"Jobs":    func(ctx context.Context) error { _, err := in.Jobs(ctx); return err },
		"Pause":   func(ctx context.Context) error { return in.Pause(ctx, "busy", "") },
		"Resume":  func(ctx context.Context) error { return in.Resume(ctx, "busy") },
		"Unlock":  func(ctx context.Context) error { return in.Unlock(ctx, "busy", "") },
	} {
		calls.Go(func() {
			err := within(2*time.Second, call)
			var u *concurrency.UnavailableError
			if !errors.As(err, &u) || !errors.Is(err, schedlock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || u.Since.IsZero() {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	calls.Wait()
	ctx, cancel := context.WithCancel(ctxT(t))
	cancel()
	in.client.Heal()
	_, err = other.History(ctx, "job")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, schedlock.ErrUnavailable, "etcd was not asked")
	close(end)
	require.NoError(t, got(t, done, "the run").err)
}
