package schedlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// logged is an instance whose session has a Logger, and what that gets of warnings.
func (f fixture) logged(so *concurrency.SessionOptions, lo *schedlock.Options) (instance, *observer.ObservedLogs) {
	f.T.Helper()
	core, lines := observer.New(zapcore.WarnLevel)
	var o concurrency.SessionOptions
	if so != nil {
		o = *so
	}
	o.Logger = zap.New(core)
	return f.instance(&o, lo), lines
}

func messages(lines *observer.ObservedLogs) (out []string) {
	for _, e := range lines.All() {
		out = append(out, e.Message)
	}
	return out
}

// What a cron library drops is logged: failed and lost runs, and ticks that cannot be
// claimed; settings that are refused once, not at each tick. What is skipped is not.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC)
	oops := func(context.Context, *schedlock.Run) error { return errors.New("oops") }
	t.Run("a run that failed", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		now := clock(at)
		in, lines := f.logged(nil, now.options())
		job, err := in.Job("job", grid(time.Minute), oops)
		require.NoError(t, err)
		job.Run()
		job.Run() // claimed
		require.Equal(t, []string{"a run failed"}, messages(lines))
		require.Equal(t, "job", lines.All()[0].ContextMap()["job"])
		require.Contains(t, lines.All()[0].ContextMap()["error"], "oops")
	})
	t.Run("settings", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		ctx := ctxT(t)
		now := clock(at)
		first := f.instance(nil, now.options())
		_, err := first.Do(ctx, "job", nothing, schedlock.AtMost(time.Minute))
		require.NoError(t, err)
		in, lines := f.logged(nil, now.options())
		job, err := in.Job("job", grid(time.Minute), nothing)
		require.NoError(t, err)
		for range 3 {
			now.set(now.now().Add(time.Minute))
			job.Run()
		}
		require.Equal(t, []string{"a job is refused, and does not run in this process"}, messages(lines))
		require.Contains(t, lines.All()[0].ContextMap()["error"], "AtMost 1m0s")
		require.NoError(t, first.sess.Close(ctx))
		now.set(now.now().Add(time.Minute))
		job.Run()
		require.Equal(t, 1, lines.Len())
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		ctx := ctxT(t)
		in, lines := f.logged(nil, clock(at).options())
		started := make(chan struct{}, 1)
		only, err := schedlock.Wrap[cronJob](in.Locker, "job", time.Minute)
		require.NoError(t, err)
		end, done := make(chan struct{}), make(chan struct{})
		job := only(cronFunc(func() { started <- struct{}{}; <-end }))
		go func() { defer close(done); job.Run() }()
		got(t, started, "it starts")
		require.NoError(t, in.Unlock(ctx, "job", "by hand"))
		close(end)
		closed(t, done, "it returns")
		require.Equal(t, []string{"a run was lost; another run may have started before its function returned"}, messages(lines))
	})
	t.Run("etcd is away", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		in, lines := f.logged(nil, nil)
		locker, err := gocronlock.New[gocronLock](in.Locker, time.Second)
		require.NoError(t, err)
		in.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1})
		_, err = locker.Lock(ctxT(t), "late")
		require.Error(t, err)
		require.Equal(t, []string{"a tick was not started in time: etcd did not answer"}, messages(lines))
	})
	t.Run("gocron cannot be served", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		in, lines := f.logged(nil, nil)
		locker, err := gocronlock.New[gocronLock](in.Locker, time.Hour)
		require.NoError(t, err)
		for range 3 {
			_, err = locker.Lock(ctxT(t), "a\nb")
			require.Error(t, err)
		}
		require.Equal(t, []string{"a job is refused, and does not run in this process"}, messages(lines))
	})
	t.Run("AtMost has passed, and the job cannot learn of it", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		in, lines := f.logged(quick(), nil)
		only, err := schedlock.Wrap[cronJob](in.Locker, "job", time.Hour, schedlock.AtMost(10*time.Millisecond))
		require.NoError(t, err)
		only(cronFunc(func() {
			f.NoKeys("/lock")
			require.Eventually(t, func() bool { return lines.Len() > 0 }, soon, 20*time.Millisecond)
		})).Run()
		require.Contains(t, messages(lines)[0], "Set AtMost")
	})
	t.Run("nothing at the end", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		in, lines := f.logged(nil, nil)
		job, err := in.Job("job", grid(time.Hour), nothing)
		require.NoError(t, err)
		require.NoError(t, in.sess.Close(ctxT(t)))
		job.Run()
		require.Empty(t, messages(lines))
	})
}

// Close requests the active runs to stop, and waits for a run that does not watch.
func TestCloseRequestsARunToStop(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	started, asked := make(chan *schedlock.Run), make(chan error, 1)
	job, err := a.Job("job", grid(time.Hour), func(ctx context.Context, r *schedlock.Run) error {
		require.Same(t, r.StopRequested(), r.StopRequested())
		started <- r
		<-r.StopRequested().Done()
		asked <- errors.Join(context.Cause(r.StopRequested()), ctx.Err())
		return nil
	})
	require.NoError(t, err)
	go job.Run()
	r := got(t, started, "it starts")
	require.NoError(t, r.StopRequested().Err())
	require.NoError(t, a.sess.Close(ctx))
	require.Equal(t, errors.Join(schedlock.ErrClosed, nil), got(t, asked, "it is asked, and its context continues"))
	h, err := b.Get(ctx, "job", r.Tick())
	require.NoError(t, err)
	require.Equal(t, schedlock.RunDone, h.State)

	var ended *schedlock.Run
	_, err = b.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error { ended = r; r.StopRequested(); return nil })
	require.NoError(t, err)
	closed(t, ended.StopRequested().Done(), "it ends with the run")
	require.ErrorIs(t, context.Cause(ended.StopRequested()), schedlock.ErrReturned)
}

// Of two calls in one process for one tick one starts at most. Where the two are two jobs, or two
// fire times, that is a mistake, of which the log speaks once.
func TestTwoCallsForOneTick(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	const twoJobs, twoCalls = "two Jobs of this process have one name", "called twice in one period,"
	for name, x := range map[string]struct {
		calls func(t *testing.T, in instance) []func()
		want  string
	}{
		"two Jobs of one name": {func(t *testing.T, in instance) (calls []func()) {
			for range 2 {
				job, err := in.Job("job", grid(time.Hour), nothing)
				require.NoError(t, err)
				calls = append(calls, job.Run)
			}
			return calls
		}, twoJobs},
		"a Job called by hand as well": {func(t *testing.T, in instance) []func() {
			job, err := in.Job("job", grid(time.Hour), nothing)
			require.NoError(t, err)
			return []func(){job.Run, job.Run}
		}, ""},
		"a Job that takes another's place": {func(t *testing.T, in instance) []func() {
			one, err := in.Job("job", grid(time.Hour), nothing)
			require.NoError(t, err)
			one.Run()
			two, err := in.Job("job", grid(3*time.Hour), nothing)
			require.NoError(t, err)
			return []func(){func() {}, two.Run}
		}, ""},
		"two jobs in one wrapper": {func(t *testing.T, in instance) []func() {
			only, err := schedlock.Wrap[cronJob](in.Locker, "job", time.Hour)
			require.NoError(t, err)
			return []func(){only(cronFunc(func() {})).Run, only(cronFunc(func() {})).Run}
		}, twoCalls},
		"a gocron job at two times of a day": {func(t *testing.T, in instance) []func() {
			l, err := gocronlock.New[gocronLock](in.Locker, 24*time.Hour)
			require.NoError(t, err)
			call := func() {
				if lock, err := l.Lock(ctxT(t), "job"); err == nil {
					require.NoError(t, lock.Unlock(ctxT(t)))
				}
			}
			return []func(){call, call}
		}, twoCalls},
		"two gocron jobs": {func(t *testing.T, in instance) []func() {
			l, err := gocronlock.New[gocronLock](in.Locker, time.Hour)
			require.NoError(t, err)
			call := func(name string) func() {
				return func() {
					lock, err := l.Lock(ctxT(t), name)
					require.NoError(t, err)
					require.NoError(t, lock.Unlock(ctxT(t)))
				}
			}
			return []func(){call("one"), call("two")}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			now := clock(at)
			in, lines := f.logged(nil, now.options())
			calls := x.calls(t, in)
			for range 3 {
				for _, call := range calls {
					call()
					now.set(now.now().Add(8 * time.Minute))
				}
				now.set(now.now().Add(24*time.Hour - 16*time.Minute))
			}
			if x.want == "" {
				require.Empty(t, messages(lines))
				return
			}
			require.Len(t, messages(lines), 1)
			require.Contains(t, messages(lines)[0], x.want)
		})
	}
}
