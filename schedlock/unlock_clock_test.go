package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// An operator whose clock is a day ahead of the fleet unlocks a run: the ticks of that day are missed, and caught up with. The run
// ended by the operator's clock, so they counted as skipped during it, and Overdue was silent (A467 in
// internal/proof/tested-failures.md).
func TestUnlockByAFastClock(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	unlocked := func(t *testing.T, opts ...schedlock.CallOption) (fixture, context.Context) {
		f := shared(t)
		ctx := ctxT(t)
		a := f.instance(nil, clock(friday).options())
		end := make(chan struct{})
		started, done := do(ctx, a.Locker, "job", end, append(opts, schedlock.Tick(friday), schedlock.Retries(1))...)
		got(t, started, "it starts")
		operator := f.instance(nil, clock(saturday.Add(10*time.Minute)).options())
		require.Eventually(t, func() bool { return len(operator.Clocks()) == 1 }, soon, 20*time.Millisecond)
		require.NoError(t, operator.Unlock(ctx, "job", "it hangs"))
		got(t, done, "it ends")
		rec, err := operator.Get(ctx, "job", friday)
		require.NoError(t, err)
		require.Equal(t, schedlock.RunUnlocked, rec.State)
		require.Less(t, rec.End.Sub(friday), time.Hour)
		require.False(t, rec.End.Before(rec.Start))
		require.NoError(t, a.sess.Close(ctx))
		require.NoError(t, operator.sess.Close(ctx))
		return f, ctx
	}
	t.Run("a missed tick is started", func(t *testing.T) {
		t.Parallel()
		f, _ := unlocked(t, ofNine)
		_, starts, reported := f.begins(saturday.Add(time.Hour))
		res := got(t, reported, "it has looked for what was missed")
		require.Equal(t, []any{schedlock.Ran, saturday}, []any{res.Outcome, res.Tick})
		require.EqualValues(t, 1, starts.Load())
	})
	t.Run("a tick is overdue", func(t *testing.T) {
		t.Parallel()
		f, ctx := unlocked(t, schedlock.Planned(nine{}, time.Minute))
		st, err := f.instance(nil, clock(saturday.Add(time.Hour)).options()).Status(ctx, "job")
		require.NoError(t, err)
		require.Equal(t, saturday.Add(time.Minute), st.Overdue(saturday.Add(time.Hour)))
	})
}

// A run whose own process was a week ahead when it ended hides no tick that has come since (A467).
func TestOverdueAfterARunThatEndsInTheFuture(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	_, err := f.instance(nil, h.options()).Do(ctx, "job", func(context.Context, *schedlock.Run) error {
		h.set(friday.AddDate(0, 0, 7))
		return nil
	}, schedlock.Tick(friday), schedlock.Planned(nine{}, time.Minute))
	require.NoError(t, err)
	saturday := friday.AddDate(0, 0, 1)
	st, err := f.instance(nil, clock(saturday.Add(time.Hour)).options()).Status(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, saturday.Add(time.Minute), st.Overdue(saturday.Add(time.Hour)))
}

// The time of a Pause is that of the fleet, as that of a Resume (A467).
func TestPauseByAFastClock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	f.instance(nil, clock(friday).options())
	operator := f.instance(nil, clock(friday.AddDate(0, 0, 1)).options())
	require.Eventually(t, func() bool { return len(operator.Clocks()) == 1 }, soon, 20*time.Millisecond)
	require.NoError(t, operator.Pause(ctx, "job", "for the test", schedlock.BeforeFirstRun()))
	st, err := operator.Status(ctx, "job")
	require.NoError(t, err)
	require.Less(t, st.Paused.Since.Sub(friday), time.Hour)
}
