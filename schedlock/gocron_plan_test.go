package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
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
			daily, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{})
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
			}, soon, 20*time.Millisecond)
			require.NoError(t, daily.Remove(ctx))
			_, err = operator.Status(ctx, "job")
			require.ErrorIs(t, err, schedlock.ErrUnknownJob)
		})
	}
}

// K24: without Plan the claim stores the plan as one by calls: it counts when the processes of the claim are replaced, as in a
// deploy, and no process is known to have the job before gocron has called for its lock.
func TestGocronPlanOfAClaim(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	operator, in := f.instance(nil, h.options()), f.instance(nil, schedlock.Settled(h.options()))
	daily, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{})
	require.NoError(t, err)
	require.NoError(t, daily.IsValid("0 9 * * *", time.UTC, h.now()))
	lock, err := daily.Lock(ctx, "job")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(ctx))
	require.NoError(t, daily.Remove(ctx), "it was not planned")
	require.NoError(t, in.sess.Close(ctx))
	st := operator.planned(t, friday.AddDate(0, 0, 1))
	require.Equal(t, []any{true, false, "0 9 * * *"}, []any{st.Plan.Called, st.Plan.Live, st.Plan.Text})
	operator.shows(t, h, friday.AddDate(0, 0, 1))

	named := f.instance(nil, schedlock.Settled(h.options()))
	daily, err = gocronlock.NewCron[gocronLock](named.Locker, anyCron{})
	require.NoError(t, err)
	require.NoError(t, daily.Plan("job"))
	require.NoError(t, daily.IsValid("0 9 * * *", time.UTC, h.now()))
	h.set(friday.AddDate(0, 0, 1))
	lock, err = daily.Lock(ctx, "job")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(ctx))
	st = operator.planned(t, friday.AddDate(0, 0, 2))
	require.False(t, st.Plan.Called)
}

// shows waits until the job has a next fire time.
func (in instance) shows(t *testing.T, h *hand, next time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, err := in.Status(ctxT(t), "job")
		return err == nil && st.NextFire(h.now()).Equal(next)
	}, soon, 20*time.Millisecond)
}
