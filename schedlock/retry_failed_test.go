package schedlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

var errDown = errors.New("the database is down")

// failing fails so many times, and counts its calls and how many of them run at a time.
type failing struct {
	fails         int64
	calls, active atomic.Int64
	overlapped    atomic.Bool
}

func (f *failing) run(context.Context, *schedlock.Run) error {
	if f.active.Add(1) > 1 {
		f.overlapped.Store(true)
	}
	defer f.active.Add(-1)
	if f.calls.Add(1) <= f.fails {
		return errDown
	}
	return nil
}

// officeHours is each hour from nine to five.
type officeHours struct{}

func (officeHours) Next(t time.Time) time.Time {
	for t = grid(time.Hour).Next(t); t.Hour() < 9 || t.Hour() > 17; {
		t = t.Add(time.Hour)
	}
	return t
}

const pause = 20 * time.Millisecond

// K18: a run that has failed is tried again by its process, after a pause, as often as is allowed; each attempt is in
// the record.
func TestRetryFailed(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		fails    int64
		outcome  schedlock.Outcome
		attempts int
	}{
		"succeeds at the second": {1, schedlock.Ran, 2},
		"succeeds at the last":   {2, schedlock.Ran, 3},
		"never succeeds":         {9, schedlock.Failed, 3},
		"does not fail":          {0, schedlock.Ran, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			var reported results
			o := clock(friday).options()
			o.Done = reported.done
			in, lines := f.logged(nil, o)
			fn := failing{fails: x.fails}
			job, err := in.Job("job", nine{}, fn.run, schedlock.RetryFailed(2, pause), schedlock.AtMost(time.Minute))
			require.NoError(t, err)
			begun := time.Now()
			res, err := job.RunContext(ctx)
			if x.outcome == schedlock.Ran {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errDown)
			}
			require.Equal(t, []any{x.outcome, x.attempts, friday}, []any{res.Outcome, res.Attempt, res.Tick})
			require.EqualValues(t, x.attempts, fn.calls.Load())
			require.GreaterOrEqual(t, time.Since(begun), time.Duration(x.attempts-1)*pause)
			require.Equal(t, []schedlock.Outcome{x.outcome}, reported.outcomes(), "once")
			require.Equal(t, x.attempts-1, lines.FilterMessageSnippet("a run failed, and may be tried again").Len())
			r, err := in.Get(ctx, "job", friday)
			require.NoError(t, err)
			require.Equal(t, x.attempts, r.Attempt)
			require.Len(t, r.Earlier, x.attempts-1)
			for n, e := range r.Earlier {
				require.Equal(t, []any{n + 1, schedlock.RunFailed, errDown.Error(), in.sess.Owner()}, []any{e.Attempt, e.State, e.Error, e.Owner})
			}
			res, err = job.RunContext(ctx)
			require.NoError(t, err)
			require.Equal(t, schedlock.Claimed, res.Outcome, "its attempts are used up, or it has succeeded")
		})
	}
}

// K18: what is not tried again.
func TestFailuresThatAreFinal(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ *schedlock.Run) error { <-ctx.Done(); return ctx.Err() }
	for name, x := range map[string]struct {
		at      time.Time
		fn      schedlock.Func
		opts    []schedlock.JobOption
		outcome schedlock.Outcome
	}{
		"AtMost does not end before the next tick": {friday.Add(23*time.Hour + 30*time.Minute), nil, []schedlock.JobOption{schedlock.AtMost(time.Hour)}, schedlock.Failed},
		"it is late":        {friday.Add(50 * time.Second), nil, []schedlock.JobOption{schedlock.LateBy(time.Minute), schedlock.AtMost(time.Second)}, schedlock.Failed},
		"AtMost has passed": {friday, hang, []schedlock.JobOption{schedlock.AtMost(10 * time.Millisecond)}, schedlock.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			h := clock(x.at)
			var calls atomic.Int64
			fn := func(ctx context.Context, r *schedlock.Run) error {
				calls.Add(1)
				if x.fn != nil {
					return x.fn(ctx, r)
				}
				h.set(h.now().Add(15 * time.Second))
				return errDown
			}
			for range 2 {
				job, err := f.instance(nil, h.options()).Job("job", nine{}, fn, append(x.opts, schedlock.RetryFailed(3, time.Millisecond))...)
				require.NoError(t, err)
				res, err := job.RunContext(ctxT(t))
				if res.Outcome.Started() {
					require.Error(t, err)
				}
			}
			require.EqualValues(t, 1, calls.Load())
		})
	}
}

// K18: a process dies after its run has failed: another one that is on standby makes the further attempt, and so does
// one that begins later. Never two at once.
func TestRetryFailedElsewhere(t *testing.T) {
	t.Parallel()
	for name, standby := range map[string]bool{"on standby": true, "begins later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			fn := failing{fails: 1}
			jobIn := func(in instance, pause time.Duration) *schedlock.Job {
				job, err := in.Job("job", nine{}, fn.run, schedlock.RetryFailed(2, pause), schedlock.AtMost(time.Minute))
				require.NoError(t, err)
				return job
			}
			first := f.instance(nil, clock(friday).options())
			ended := make(chan error, 1)
			go func() { _, err := jobIn(first, time.Hour).RunContext(ctx); ended <- err }()
			require.Eventually(t, func() bool {
				r, err := first.Get(ctx, "job", friday)
				return err == nil && r.State == schedlock.RunFailed
			}, soon, 20*time.Millisecond)
			if !standby {
				require.NoError(t, first.sess.Close(ctx))
				require.ErrorIs(t, got(t, ended, "it ends"), errDown)
			}
			second := f.instance(nil, clock(friday.Add(time.Minute)).options())
			if standby {
				res, err := jobIn(second, pause).RunContext(ctx)
				require.NoError(t, err)
				require.Equal(t, []any{schedlock.Ran, 2}, []any{res.Outcome, res.Attempt})
				require.NoError(t, first.sess.Close(ctx))
				require.ErrorIs(t, got(t, ended, "it ends"), errDown)
			} else {
				jobIn(second, pause).Next(friday.Add(time.Minute))
				require.Eventually(t, func() bool {
					r, err := second.Get(ctx, "job", friday)
					return err == nil && r.State == schedlock.RunDone
				}, soon, 20*time.Millisecond)
			}
			require.EqualValues(t, 2, fn.calls.Load())
			require.False(t, fn.overlapped.Load())
		})
	}
}

// K20: a call that finds the first attempt active is on standby for its failure. Its process makes the further attempt
// when the one that has failed is gone.
func TestRetryFailedFromAnActiveRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	fn := failing{fails: 1}
	fail, started := make(chan struct{}), make(chan struct{}, 1)
	call := func(in instance, work schedlock.Func, pause time.Duration) <-chan answer {
		done := make(chan answer, 1)
		go func() {
			res, err := in.Do(ctx, "job", work, schedlock.Tick(tick(1)), schedlock.RetryFailed(3, pause), schedlock.AtMost(time.Minute))
			done <- answer{res, err}
		}()
		return done
	}
	first, second := f.instance(nil, nil), f.instance(nil, nil)
	fails := call(first, func(ctx context.Context, r *schedlock.Run) error {
		started <- struct{}{}
		<-fail
		return fn.run(ctx, r)
	}, time.Hour)
	got(t, started, "the first attempt starts")
	retries := call(second, fn.run, pause)
	require.Eventually(t, func() bool { return second.client.Requests()["Txn"] > 0 }, soon, 20*time.Millisecond, "it asks")
	select {
	case a := <-retries:
		require.Fail(t, "it is not on standby while the run is active", "%+v", a)
	case <-time.After(pause):
	}
	close(fail)
	a := got(t, retries, "the further attempt")
	require.NoError(t, a.err)
	require.Equal(t, []any{schedlock.Ran, 2}, []any{a.res.Outcome, a.res.Attempt})
	require.NoError(t, first.sess.Close(ctx))
	require.ErrorIs(t, got(t, fails, "the first call").err, errDown)
	require.EqualValues(t, 2, fn.calls.Load())
	require.False(t, fn.overlapped.Load())
}

// K18: of several processes on standby one makes each further attempt, and a later tick ends them.
func TestRetryFailedByOneOfMany(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	fn := failing{fails: 3}
	h := clock(friday)
	outcomes := make(chan schedlock.Outcome, 4)
	for range 4 {
		job, err := f.instance(nil, h.options()).Job("job", nine{}, fn.run, schedlock.RetryFailed(5, pause), schedlock.AtMost(time.Minute))
		require.NoError(t, err)
		go func() {
			res, err := job.RunContext(ctx)
			if res.Outcome == schedlock.Claimed && err != nil {
				panic(err)
			}
			outcomes <- res.Outcome
		}()
	}
	ran := 0
	for range 4 {
		if got(t, outcomes, "a call returns") == schedlock.Ran {
			ran++
		}
	}
	require.Equal(t, 1, ran)
	require.EqualValues(t, 4, fn.calls.Load())
	require.False(t, fn.overlapped.Load())

	// The pause is longer than the time to the next tick, which is claimed meanwhile.
	fn = failing{fails: 1}
	in := f.instance(nil, h.options())
	res := make(chan schedlock.Outcome, 1)
	job, err := in.Job("other", nine{}, fn.run, schedlock.RetryFailed(5, time.Hour), schedlock.AtMost(time.Minute))
	require.NoError(t, err)
	go func() { r, _ := job.RunContext(ctx); res <- r.Outcome }()
	require.Eventually(t, func() bool { return fn.calls.Load() == 1 }, soon, 20*time.Millisecond)
	h.set(friday.AddDate(0, 0, 1))
	next, err := job.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, next.Outcome)
	require.Equal(t, schedlock.Failed, got(t, res, "the later tick ends it"))
	require.EqualValues(t, 2, fn.calls.Load())
}

// RetryFailed is refused where it would have no effect.
func TestRetryFailedRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	option := schedlock.RetryFailed(2, time.Second)
	_, err := gocronlock.New[gocronLock](in.Locker, time.Hour, option)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	_, err = gocronlock.NewCron[gocronLock](in.Locker, anyCron{}, option)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	_, err = schedlock.Wrap[cronJob](in.Locker, "job", time.Hour, option)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	_, err = in.Job("job", schedlock.Periods(time.Hour), nothing, option)
	require.ErrorContains(t, err, "set AtMost lower")
	_, err = in.Do(ctxT(t), "job", nothing, schedlock.Every(time.Hour), option)
	require.ErrorContains(t, err, "set AtMost lower")
	for _, bad := range []schedlock.Option{schedlock.RetryFailed(0, time.Second), schedlock.RetryFailed(1001, time.Second), schedlock.RetryFailed(1, 0)} {
		_, err = in.Job("job", nine{}, nothing, bad)
		require.ErrorIs(t, err, schedlock.ErrInvalid)
	}
	// K21: nor with a schedule of fire times whose longest interval is too short.
	for name, x := range map[string]struct {
		schedule schedlock.Schedule
		opts     []schedlock.JobOption
		refused  bool
	}{
		"each hour, AtMost by default": {grid(time.Hour), []schedlock.JobOption{schedlock.RetryFailed(3, time.Minute)}, true},
		"each hour, a lower AtMost":    {grid(time.Hour), []schedlock.JobOption{schedlock.RetryFailed(3, time.Minute), schedlock.AtMost(10 * time.Minute)}, false},
		"by day, the night is long":    {officeHours{}, []schedlock.JobOption{schedlock.RetryFailed(3, time.Minute)}, false},
		"each minute, AtMost as long":  {grid(time.Minute), []schedlock.JobOption{schedlock.RetryFailed(3, time.Second), schedlock.AtMost(time.Minute)}, true},
	} {
		_, err = in.Job(name, x.schedule, nothing, x.opts...)
		if x.refused {
			require.ErrorIs(t, err, schedlock.ErrInvalid, name)
			require.ErrorContains(t, err, "set AtMost lower", name)
		} else {
			require.NoError(t, err, name)
		}
	}
	// Another process has none of it, and runs the job all the same.
	fn := failing{}
	job, err := in.Job("agreed", nine{}, fn.run, option)
	require.NoError(t, err)
	_, err = job.RunContext(ctxT(t))
	require.NoError(t, err)
	other, err := f.instance(nil, nil).Job("agreed", nine{}, fn.run)
	require.NoError(t, err)
	_, err = other.RunContext(ctxT(t))
	require.NoError(t, err)
}
