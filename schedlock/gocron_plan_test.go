package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// K24: of a job of gocron at times of day etcd has the plan before it has run, if its name is known: "never run", with its
// next fire time, and which process has it. Another crontab replaces the plan, and Remove ends it.
func TestGocronPlan(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before NewJob": true, "after NewJob": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday.Add(-time.Hour))
			operator, in := f.instance(nil, h.options()), f.instance(nil, schedlock.Settled(h.options()))
			daily, err := schedlock.NewGocronCron[gocronLock](in.Locker, anyCron{})
			require.NoError(t, err)
			require.ErrorIs(t, daily.Plan(""), schedlock.ErrInvalid)
			if before {
				require.NoError(t, daily.Plan("job"))
			}
			require.NoError(t, daily.IsValid("0 9 * * *", time.UTC, h.now()))
			require.NoError(t, daily.Plan("job"))
			require.ErrorIs(t, daily.Plan("other"), schedlock.ErrInvalid)
			st := operator.planned(t, friday)
			require.Nil(t, st.Last)
			require.Equal(t, []any{"0 9 * * *", "UTC"}, []any{st.Plan.Text, st.Plan.Zone})
			operator.shows(t, h, friday)
			_, err = daily.Lock(ctx, "other")
			require.ErrorContains(t, err, "WithName")

			require.NoError(t, daily.IsValid("00 09 * * *", time.UTC, h.now()))
			require.Eventually(t, func() bool {
				st, err := operator.Status(ctx, "job")
				return err == nil && st.Plan.Text == "00 09 * * *"
			}, soon, 5*time.Millisecond)
			require.NoError(t, daily.Remove(ctx))
			_, err = operator.Status(ctx, "job")
			require.ErrorIs(t, err, schedlock.ErrUnknownJob)
		})
	}
}

// K24: without Plan, a process is known to have the job from its first call for the lock on, whether or not that call
// starts the tick.
func TestGocronPlanOfTheFirstLock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	operator, in := f.instance(nil, h.options()), f.instance(nil, schedlock.Settled(h.options()))
	daily, err := schedlock.NewGocronCron[gocronLock](in.Locker, anyCron{})
	require.NoError(t, err)
	require.NoError(t, daily.Remove(ctx), "it has no name")
	require.NoError(t, daily.IsValid("0 9 * * *", time.UTC, h.now()))
	require.NoError(t, operator.Pause(ctx, "job", "not yet", schedlock.BeforeFirstRun()))
	_, err = daily.Lock(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrSkipped)
	require.NoError(t, operator.Resume(ctx, "job"))
	operator.shows(t, h, friday.AddDate(0, 0, 1))
	require.ErrorIs(t, operator.Forget(ctx, "job"), schedlock.ErrInUse)
}

// shows waits until the job has a next fire time.
func (in instance) shows(t *testing.T, h *hand, next time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, err := in.Status(ctxT(t), "job")
		return err == nil && st.NextFire(h.now()).Equal(next)
	}, soon, 5*time.Millisecond)
}
