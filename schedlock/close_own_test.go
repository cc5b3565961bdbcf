package schedlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/schedlock"
)

// ownCalls begin a run of a Job in a goroutine of the Locker.
var ownCalls = map[string]func(f fixture, job *schedlock.Job){
	"missed": func(_ fixture, job *schedlock.Job) { job.Next(time.Now()) },
	"requested": func(f fixture, job *schedlock.Job) {
		job.Next(time.Now())
		_, err := f.instance(nil, nil).RequestRun(ctxT(f.T), "job", "")
		require.NoError(f.T, err)
	},
}

// endedCtx returns a ctx that has ended.
func endedCtx() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// closes asserts that Close by a ctx that has ended returns, and that nothing is held in etcd any more.
func (f fixture) closes(s *concurrency.Session) error {
	f.T.Helper()
	shut := make(chan error, 1)
	go func() { shut <- s.Close(endedCtx()) }()
	err := got(f.T, shut, "Close returns")
	require.ErrorIs(f.T, err, context.Canceled)
	require.Zero(f.T, s.Lease())
	return err
}

// A346: Close returns after its deadline although a run that the Locker has started itself goes on: its function does not look
// at its ctx, and nothing can end it. The run has ended by then, and so has its lease.
func TestCloseLeavesOwnRuns(t *testing.T) {
	t.Parallel()
	for name, begin := range ownCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			other := f.instance(nil, nil)
			_, err := other.Do(ctxT(t), "job", nothing, schedlock.Tick(anHourAgo), schedlock.Planned(grid(time.Minute), 0))
			require.NoError(t, err)
			done := make(calls, 10)
			a := f.instance(nil, done.options())
			end, runs := make(chan struct{}), make(chan *schedlock.Run, 1)
			job, err := a.Job("job", grid(time.Minute), func(_ context.Context, r *schedlock.Run) error {
				runs <- r
				<-end
				return nil
			}, schedlock.OnMisfire(schedlock.Once))
			require.NoError(t, err)
			begin(f, job)
			r := got(t, runs, "it starts")
			lease := a.sess.Lease()
			require.ErrorContains(t, f.closes(a.sess), "has not returned")
			require.ErrorIs(t, r.Err(), schedlock.ErrClosed)
			resp, err := f.Client().TimeToLive(ctxT(t), lease)
			require.NoError(t, err)
			require.Less(t, resp.TTL, int64(1), "the lease is revoked")
			close(end)
			for ended := false; !ended; { // what was missed has a call beside the requested one, which may have ended without a run
				ended = errors.Is(got(t, done, "it ends").err, schedlock.ErrClosed)
			}
		})
	}
}

// A347: a requested run whose function closes its own session, such as that of a job "drain", is one for which Close waits:
// until its ctx ends.
func TestCloseByOwnRun(t *testing.T) {
	t.Parallel()
	for name, begin := range ownCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			_, err := f.instance(nil, nil).Do(ctxT(t), "job", nothing, schedlock.Tick(anHourAgo), schedlock.Planned(grid(time.Minute), 0))
			require.NoError(t, err)
			a, shut := f.instance(nil, nil), make(chan error, 1)
			job, err := a.Job("job", grid(time.Minute), func(context.Context, *schedlock.Run) error {
				shut <- a.sess.Close(endedCtx())
				return nil
			}, schedlock.OnMisfire(schedlock.Once))
			require.NoError(t, err)
			begin(f, job)
			require.ErrorIs(t, got(t, shut, "Close returns"), context.Canceled)
		})
	}
}

// A348: nor does Close wait for other functions of the program that do not return, which goroutines of the session have called:
// Options.Lost, and hooks at each end of a run.
func TestCloseLeavesCallbacks(t *testing.T) {
	t.Parallel()
	t.Run("Lost", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		ctx, end := ctxT(t), make(chan struct{})
		defer close(end)
		called := make(chan schedlock.Record, 10)
		a, b := f.instance(nil, nil), f.instance(nil, &schedlock.Options{Lost: func(r schedlock.Record) { called <- r; <-end }})
		_, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
		require.NoError(t, err)
		started, _ := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(2)))
		got(t, started, "it starts")
		require.ErrorIs(t, a.sess.Close(endedCtx()), context.Canceled)
		got(t, called, "Lost is called")
		shut := make(chan error, 1)
		go func() { shut <- b.sess.Close(endedCtx()) }()
		require.ErrorContains(t, got(t, shut, "Close returns"), "has not returned")
	})
	t.Run("Overrun", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		end := make(chan struct{})
		defer close(end)
		called := make(chan struct{}, 1)
		a := f.instance(&concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
			if _, is := e.(observe.Overrun); is {
				called <- struct{}{}
				<-end
			}
		}}}}, nil)
		go func() {
			_, _ = a.Do(ctxT(t), "job", func(context.Context, *schedlock.Run) error { <-end; return nil }, schedlock.AtMost(time.Millisecond))
		}()
		got(t, called, "the hook is called")
		shut := make(chan error, 1)
		go func() { shut <- a.sess.Close(endedCtx()) }()
		require.ErrorContains(t, got(t, shut, "Close returns"), "has not returned")
	})
}
