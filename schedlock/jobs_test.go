package schedlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A351: a process that calls Do with ever new names, such as one for each upload, stays small, and does not read each of them
// after each reconnection. What needs the events of a job keeps it: a run, a call on standby, a Job until Remove.
func TestManyNames(t *testing.T) {
	t.Parallel()
	const few, names = 8, 60
	f := shared(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, schedlock.Few(few)), f.instance(nil, nil)

	end := make(chan struct{})
	started, done := do(ctx, a.Locker, "long", end, schedlock.Tick(tick(1)))
	r := got(t, started, "it starts")
	other, _ := do(ctx, b.Locker, "standby", nil, schedlock.Tick(tick(1)), schedlock.Retries(1))
	got(t, other, "it starts")
	retried, _ := do(ctx, a.Locker, "standby", end, schedlock.Tick(tick(1)), schedlock.Retries(1))
	asked := make(chan struct{}, 1)
	job, err := a.Job("asked", schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { asked <- struct{}{}; return nil })
	require.NoError(t, err)
	job.Next(time.Now())

	for n := range names {
		_, err := a.Do(ctx, fmt.Sprint("once-", n), nothing)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, schedlock.Jobs(a.Locker), 2*few+3, "of %d names", names)

	require.NoError(t, b.Unlock(ctx, "long", ""))
	closed(t, r.Context().Done(), "a run learns that it was unlocked")
	got(t, done, "it returns")
	require.Eventually(t, func() bool { _, err := b.RequestRun(ctx, "asked", ""); return err == nil }, soon, 20*time.Millisecond)
	got(t, asked, "a Job learns of a request")
	require.Error(t, b.sess.Close(endedCtx()))
	got(t, retried, "a call on standby learns of a loss")
	close(end)

	require.NoError(t, job.Remove(ctx))
	for n := range names {
		_, err := a.Do(ctx, fmt.Sprint("later-", n), nothing)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, schedlock.Jobs(a.Locker), 2*few+2, "of %d names", 2*names)

	a.client.ResetRequests()
	a.client.Cut()
	a.client.Heal()
	_, err = a.Do(ctx, "after", nothing)
	require.NoError(t, err)
	require.Less(t, a.client.Requests()["Txn"], names)
}

// A377: a daily job is not forgotten between two days, however many names are used meanwhile: its timer may be early.
func TestManyNamesBetweenTwoDays(t *testing.T) {
	t.Parallel()
	for way, call := range daily(t) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			const few = 2
			f := shared(t)
			first := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
			now, o := clock(first), schedlock.Few(few)
			o.Now = now.now
			var starts atomic.Int64
			in := f.instance(nil, o)
			daily := call(in, &starts)
			for night := range 3 {
				now.set(first.AddDate(0, 0, night).Add(-time.Duration(night) * 100 * time.Millisecond)) // it is set back
				daily()
				require.EqualValues(t, night+1, starts.Load(), "night %d", night)
				for n := range 4 * few {
					_, err := in.Do(ctxT(t), fmt.Sprint("once-", night, "-", n), nothing)
					require.NoError(t, err)
				}
			}
			now.set(first.AddDate(0, 0, 5))
			for n := range 4 * few {
				_, err := in.Do(ctxT(t), fmt.Sprint("later-", n), nothing)
				require.NoError(t, err)
			}
			require.LessOrEqual(t, schedlock.Jobs(in.Locker), 2*few, "it is forgotten when no call has come for long")
		})
	}
}

// A351: the leases that a job for AtLeast has ready are revoked when it is forgotten.
func TestForgottenSpares(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, schedlock.Few(1)), f.instance(nil, nil)
	end := make(chan struct{})
	day := []schedlock.CallOption{schedlock.AtLeast(24 * time.Hour)}
	started, _ := do(ctx, b.Locker, "job", end, day...)
	got(t, started, "it starts")
	res, err := a.Do(ctx, "job", nothing, day...)
	require.NoError(t, err)
	require.Equal(t, schedlock.StillRunning, res.Outcome)
	before, err := f.Client().Leases(ctx)
	require.NoError(t, err)
	require.Len(t, before.Leases, 4, "two sessions, the cooldown, and one that is ready")
	for n := range 10 {
		_, err := a.Do(ctx, fmt.Sprint("once-", n), nothing)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		all, err := f.Client().Leases(ctx)
		return err == nil && len(all.Leases) == 3
	}, soon, 20*time.Millisecond)
	close(end)
}
