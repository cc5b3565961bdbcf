package schedlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// J1: eight instances come to each tick at different times, and the job takes no time.
// It starts once per tick.
func TestOneStartPerTick(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const instances, ticks = 8, 10
	var mu sync.Mutex
	starts := map[string]int{}
	var wg sync.WaitGroup
	for i := range instances {
		in := f.instance(nil, nil)
		wg.Go(func() {
			for n := range ticks {
				time.Sleep(time.Duration(i*3) * time.Millisecond)
				res, err := in.Do(ctx, "zero", func(_ context.Context, r *schedlock.Run) error {
					mu.Lock()
					defer mu.Unlock()
					starts[r.Tick().String()]++
					return nil
				}, schedlock.Tick(tick(n)))
				if err != nil || res.Outcome == schedlock.Lost || res.Outcome == schedlock.Failed {
					t.Errorf("%v %v", res, err)
				}
			}
		})
	}
	wg.Wait()
	for at, n := range starts {
		require.Equal(t, 1, n, at)
	}
	require.NotEmpty(t, starts)
	h, err := f.instance(nil, nil).History(ctx, "zero")
	require.NoError(t, err)
	require.Len(t, h, len(starts))
	for _, r := range h {
		require.Equal(t, schedlock.RunDone, r.State)
	}
}

// Two Raft entries per run for the whole fleet: one for the start, one for the end.
func TestTwoEntriesPerRun(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	const instances, ticks = 8, 20
	var lks []instance
	for range instances {
		lks = append(lks, f.instance(nil, nil))
	}
	round := func(n int) {
		var wg sync.WaitGroup
		for _, in := range lks {
			wg.Go(func() {
				_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for _, in := range lks {
		require.Eventually(t, func() bool { return len(in.Clocks()) == instances-1 }, soon, 20*time.Millisecond)
	}
	round(0) // stores the settings
	before := revision(t, f)
	for n := range ticks {
		round(n + 1)
	}
	entries := float64(revision(t, f)-before) / ticks
	t.Logf("%.2f revisions per tick of %d instances", entries, instances)
	require.InDelta(t, 2, entries, 0.2)
}

func revision(t testing.TB, f fixture) int64 {
	resp, err := f.Client().Get(ctxT(t), "x")
	require.NoError(t, err)
	return resp.Header.Revision
}

// A tick is claimed for good, whichever process comes later and however the run has ended.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	res, err := a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return errors.New("no luck") }, schedlock.Tick(tick(5)))
	require.EqualError(t, err, "no luck")
	require.Equal(t, schedlock.Failed, res.Outcome)
	require.Equal(t, 1, res.Attempt)
	for range 2 {
		res, err = b.Do(ctx, "job", nothing, schedlock.Tick(tick(5)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Claimed, res.Outcome)
		require.Zero(t, res.Token)
	}
	res, err = b.Do(ctx, "job", nothing, schedlock.Tick(tick(4)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome, "a later tick was claimed")
	res, err = b.Do(ctx, "job", nothing, schedlock.Tick(tick(6)), schedlock.LateBy(time.Minute))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome)

	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(7)))
	r := got(t, started, "it starts")
	require.NoError(t, r.Check(ctx))
	res, err = b.Do(ctx, "job", nothing, schedlock.Tick(tick(8)))
	require.NoError(t, err)
	require.Equal(t, schedlock.StillRunning, res.Outcome)
	require.Equal(t, a.sess.Owner(), res.Owner)
	close(end)
	x := got(t, done, "it ends")
	require.NoError(t, x.err)
	require.Equal(t, schedlock.Ran, x.res.Outcome)
	require.ErrorIs(t, r.Err(), schedlock.ErrReturned)

	require.NoError(t, b.Pause(ctx, "job", "moving house"))
	res, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(9)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Paused, res.Outcome)
	require.Equal(t, b.sess.Owner(), res.Paused.By)
	require.NoError(t, b.Resume(ctx, "job"))
	res, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(9)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome, "a pause is no claim")

	h, err := b.History(ctx, "job")
	require.NoError(t, err)
	require.Len(t, h, 3)
	require.Equal(t, "no luck", h[2].Error)
	require.Equal(t, schedlock.RunFailed, h[2].State)
	f.NoKeys("/lock")
}

// J26: a panic and runtime.Goexit free the job and are recorded.
func TestPanicAndGoexit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	require.PanicsWithValue(t, "oops", func() {
		_, _ = a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { panic("oops") }, schedlock.Tick(tick(1)))
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { runtime.Goexit(); return nil }, schedlock.Tick(tick(2)))
	}()
	closed(t, done, "it is gone")
	f.NoKeys("/lock")
	h, err := a.History(ctx, "job")
	require.NoError(t, err)
	require.Len(t, h, 2)
	require.Equal(t, "panic: oops", h[1].Error)
	require.Equal(t, "runtime.Goexit was called", h[0].Error)
}

// J7: the caller's context ends while the job runs. The end is recorded all the same.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	ctx, cancel := context.WithCancel(ctxT(t))
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)))
	got(t, started, "it starts")
	cancel()
	x := got(t, done, "it ends")
	require.ErrorIs(t, x.err, context.Canceled)
	require.Equal(t, schedlock.Failed, x.res.Outcome)
	f.NoKeys("/lock")
	h, err := a.History(ctxT(t), "job")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunFailed, h[0].State)
}

// J8: the claim is applied and its answer lost. The tick is run, once.
func TestLostAnswerOfAClaim(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Times: 1})
	var starts atomic.Int64
	res, err := a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { starts.Add(1); return nil }, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.EqualValues(t, 1, starts.Load())
	f.NoKeys("/lock")
}

// S4: records are trimmed, and their ticks stay closed.
func TestTrapS4TrimmedTicksStayClosed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, &schedlock.Options{Keep: 2})
	for n := range 5 {
		res, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
	h, err := a.History(ctx, "job")
	require.NoError(t, err)
	require.Len(t, h, 2)
	require.Len(t, f.Keys("/floor/"), 1)
	b := f.instance(nil, nil)
	for n := range 5 {
		res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
		require.Contains(t, []schedlock.Outcome{schedlock.Late, schedlock.Claimed}, res.Outcome)
	}
	// Even if all records are deleted by hand.
	for _, k := range f.Keys("/run/") {
		_, err := f.Client().Delete(ctx, k)
		require.NoError(t, err)
	}
	res, err := f.instance(nil, nil).Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome)
}

// AtMost ends the context; a function that ignores it keeps the job no longer than a
// margin more.
func TestAtMost(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute, Margin: 300 * time.Millisecond}, nil)
	_, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.AtMost(50*time.Millisecond))
	x := got(t, done, "it ends")
	require.ErrorIs(t, x.err, schedlock.ErrTooLong)
	require.Equal(t, schedlock.Failed, x.res.Outcome)

	stuck := make(chan struct{})
	answers := make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "stuck", func(context.Context, *schedlock.Run) error { <-stuck; return nil },
			schedlock.Tick(tick(1)), schedlock.AtMost(50*time.Millisecond))
		answers <- answer{res, err}
	}()
	require.Eventually(t, func() bool {
		h, err := a.History(ctx, "stuck")
		return err == nil && len(h) == 1 && h[0].State == schedlock.RunFailed
	}, soon, 20*time.Millisecond)
	f.NoKeys("stuck/lock")
	close(stuck)
	x = got(t, answers, "it returns at last")
	require.ErrorIs(t, x.err, schedlock.ErrTooLong)
}

// A function that returns why its context has ended, as it is or wrapped, says no more than
// the run does: the error and the history have it once.
func TestCauseOfTheEndIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	for name, why := range map[string]func(error) error{
		"plain":   func(err error) error { return err },
		"wrapped": func(err error) error { return fmt.Errorf("step 2: %w", err) },
	} {
		a := f.instance(&concurrency.SessionOptions{TTL: time.Minute, Margin: 50 * time.Millisecond}, nil)
		_, err := a.Do(ctx, name, func(ctx context.Context, _ *schedlock.Run) error {
			<-ctx.Done()
			return why(context.Cause(ctx))
		}, schedlock.AtMost(50*time.Millisecond))
		require.ErrorIs(t, err, schedlock.ErrTooLong)
		require.Equal(t, 1, strings.Count(err.Error(), "AtMost of "), err)
		require.Eventually(t, func() bool {
			h, err := a.History(ctx, name)
			return err == nil && len(h) == 1 && strings.Count(h[0].Error, "AtMost of ") == 1
		}, soon, 20*time.Millisecond)

		_, err = a.Do(ctx, name+", late", func(ctx context.Context, _ *schedlock.Run) error {
			<-ctx.Done()
			f.NoKeys("late/lock")
			return why(context.Cause(ctx))
		}, schedlock.AtMost(50*time.Millisecond))
		require.ErrorIs(t, err, schedlock.ErrTooLong)
		require.ErrorContains(t, err, "did not return when AtMost had passed")
		require.Equal(t, 1, strings.Count(err.Error(), "AtMost of "), err)

		_, err = a.Do(ctx, name+", lost", func(ctx context.Context, _ *schedlock.Run) error {
			if err := f.RevokeLease(ctx, a.sess.Lease()); err != nil {
				return err
			}
			<-ctx.Done()
			return why(context.Cause(ctx))
		})
		require.ErrorIs(t, err, schedlock.ErrLost)
		require.Equal(t, 1, strings.Count(err.Error(), "attempt 1"), err)
	}
}

// J19: the run was ended by AtMost, of which etcd takes no note at present. The function
// returns at last, and so does the call.
func TestAtMostWithoutAnswer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(&concurrency.SessionOptions{TTL: time.Minute, Margin: 50 * time.Millisecond}, nil)
	silent := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isFinish, Times: -1, Do: embedtest.HoldRequest})
	stuck := make(chan struct{})
	answers := make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { <-stuck; return nil },
			schedlock.Tick(tick(1)), schedlock.AtMost(50*time.Millisecond))
		answers <- answer{res, err}
	}()
	require.Eventually(t, func() bool { return silent.Hits() > 0 }, soon, 20*time.Millisecond, "its end is on its way")
	close(stuck)
	x := got(t, answers, "it returns")
	require.ErrorIs(t, x.err, schedlock.ErrTooLong)
	require.Equal(t, schedlock.Failed, x.res.Outcome)
	silent.Remove()
	_ = silent.Release()
	f.NoKeys("/lock")
}

// Unlock ends a run by force; its context has the process and the reason, and its tick stays closed.
func TestUnlock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	require.ErrorIs(t, b.Unlock(ctx, "job", ""), schedlock.ErrUnknownJob)
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(tick(1)), schedlock.Retries(3))
	got(t, started, "it starts")
	require.NoError(t, b.Unlock(ctx, "job", "it hangs"))
	x := got(t, done, "it ends")
	require.ErrorIs(t, x.err, schedlock.ErrUnlocked)
	require.ErrorIs(t, x.err, schedlock.ErrLost)
	require.ErrorContains(t, x.err, "by "+b.sess.Owner()+": it hangs")
	require.Equal(t, schedlock.Lost, x.res.Outcome)
	r, err := b.Get(ctx, "job", tick(1))
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunUnlocked, "it hangs", b.sess.Owner()}, []any{r.State, r.Error, r.By})
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.Retries(3))
	require.NoError(t, err)
	require.Equal(t, schedlock.Claimed, res.Outcome)
}

// L8: a job of one name with other settings is an error while the others live.
func TestTrapL8OtherSettings(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)), schedlock.AtMost(time.Minute))
	require.NoError(t, err)
	_, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtMost(time.Hour))
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	var other *schedlock.SettingsError
	_, err = b.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtMost(time.Hour))
	require.ErrorAs(t, err, &other)
	require.NoError(t, a.sess.Close(ctx))
	res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtMost(time.Hour))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// J28: a process whose clock is a day fast claims ticks of tomorrow. The others run theirs.
func TestFastClock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	now := f.instance(nil, schedlock.WithClock(schedlock.Options{}, 0))
	fast := f.instance(nil, schedlock.WithClock(schedlock.Options{Keep: 2}, 24*time.Hour))
	require.Eventually(t, func() bool {
		k := now.Clocks()
		return len(k) == 1 && k[0].Known && k[0].Ahead > 23*time.Hour
	}, soon, 20*time.Millisecond, "its skew is measured")
	for n := range 6 {
		res, err := fast.Do(ctx, "job", nothing, schedlock.Tick(tick(n).Add(24*time.Hour)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
		res, err = now.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome, n)
	}
	_, err := now.Do(ctx, "job", nothing, schedlock.Tick(time.Now().Add(time.Hour)))
	require.ErrorIs(t, err, schedlock.ErrInvalid)
}

// MustHold panics outside of the job, and when the run has ended.
func TestMustHold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	var inner context.Context
	_, err := a.Do(ctx, "outer", func(ctx context.Context, outer *schedlock.Run) error {
		_, err := a.Do(ctx, "inner", func(ctx context.Context, r *schedlock.Run) error {
			inner = ctx
			schedlock.MustHold(ctx, "inner")
			schedlock.MustHold(ctx, "outer")
			in, ok := schedlock.FromContext(ctx)
			require.True(t, ok && in == r && r != outer)
			require.Panics(t, func() { schedlock.MustHold(ctx, "other") })
			return nil
		})
		return err
	})
	require.NoError(t, err)
	require.Panics(t, func() { schedlock.MustHold(inner, "inner") })
	require.Panics(t, func() { schedlock.MustHold(ctx, "inner") })
}

// Without a tick, only calls at the same time exclude each other, whatever the clocks say.
func TestWithoutATick(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	slow := f.instance(nil, schedlock.WithClock(schedlock.Options{Keep: 2}, -30*time.Second))
	fast := f.instance(nil, schedlock.WithClock(schedlock.Options{Keep: 2}, 0))
	for range 5 {
		for _, in := range []instance{fast, slow, slow} {
			res, err := in.Do(ctx, "job", nothing)
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome)
		}
	}
}

// Options.Done is called for a panic, once; and what a function returns after AtMost, and how
// long it took, is not lost.
func TestBadEndsAreReported(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	type doneCall struct {
		schedlock.Result
		err error
	}
	var all []doneCall
	a := f.instance(brisk(), &schedlock.Options{Done: func(r schedlock.Result, err error) { all = append(all, doneCall{r, err}) }})
	require.PanicsWithValue(t, "ouch", func() {
		_, _ = a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { panic("ouch") }, schedlock.Tick(tick(1)))
	})
	require.Len(t, all, 1)
	require.Equal(t, schedlock.Failed, all[0].Outcome)
	require.ErrorContains(t, all[0].err, "ouch")
	mine := errors.New("mine")
	began := time.Now()
	res, err := a.Do(ctx, "slow", func(ctx context.Context, _ *schedlock.Run) error {
		<-ctx.Done()
		f.NoKeys("/lock") // the job is released a margin later
		return mine
	}, schedlock.Tick(tick(1)), schedlock.AtMost(50*time.Millisecond))
	require.Equal(t, schedlock.Failed, res.Outcome)
	require.ErrorIs(t, err, schedlock.ErrTooLong)
	require.ErrorIs(t, err, mine)
	require.Greater(t, res.Took, 300*time.Millisecond, "AtMost and the margin at least")
	require.LessOrEqual(t, res.Took, time.Since(began))
	_, _ = a.Do(ctx, "job", nil)
	require.Len(t, all, 3)
	require.Equal(t, "not claimed", all[2].Outcome.String())
	require.ErrorIs(t, all[2].err, schedlock.ErrInvalid)
}

// L8: the period is one of the settings, and a call without one agrees with every period.
func TestTrapL8OtherPeriods(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	ran := func(l instance, opts ...schedlock.CallOption) {
		t.Helper()
		res, err := l.Do(ctx, "job", nothing, opts...)
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
	ran(a, schedlock.Tick(tick(0))) // its calls have ticks
	ran(b, schedlock.Tick(tick(1)), schedlock.Every(time.Second))
	ran(a, schedlock.Tick(tick(2)))
	require.NoError(t, b.sess.Close(ctx))
	ran(a, schedlock.Tick(tick(3)), schedlock.Every(time.Second))
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(4)), schedlock.Every(time.Minute))
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	_, err = c.Do(ctx, "job", nothing, schedlock.Tick(tick(4)), schedlock.Every(2*time.Second))
	var other *schedlock.SettingsError
	require.ErrorAs(t, err, &other)
	require.Contains(t, err.Error(), "Every 1s")
	require.Contains(t, err.Error(), "Every 2s")
	ran(c)
}

// Settings that were emptied by hand are an error, and not retried for ever.
func TestEmptySettings(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing)
	require.NoError(t, err)
	keys := f.Keys("/settings")
	require.Len(t, keys, 1)
	_, err = a.client.Put(ctx, keys[0], "")
	require.NoError(t, err)
	var other *schedlock.SettingsError
	_, err = a.Do(ctx, "job", nothing)
	require.ErrorAs(t, err, &other)
}
