package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// K25: a job that no process has between two ticks has the plan of its latest claim: a next fire time without a live
// process, for a week after a fire time for which no call has come.
func TestPlanned(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday.Add(time.Minute))
	operator, in := f.instance(nil, h.options()), f.instance(nil, h.options())
	planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
	for _, bad := range []schedlock.CallOption{schedlock.Planned(nil, 0), schedlock.Planned(nine{}, -1)} {
		_, err := in.Do(ctx, "job", nothing, schedlock.Tick(friday), bad)
		require.ErrorIs(t, err, schedlock.ErrInvalid)
	}
	res, err := in.Do(ctx, "job", nothing, schedlock.Tick(friday), planned)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.NoError(t, in.sess.Close(ctx))
	st, err := operator.Status(ctx, "job")
	require.NoError(t, err)
	next := friday.AddDate(0, 0, 1)
	require.Equal(t, []any{true, false, time.Hour, "0 9 * * *", "UTC"}, []any{st.Plan.Called, st.Plan.Live, st.Plan.Late, st.Plan.Text, st.Plan.Zone})
	require.True(t, st.Plan.Due.Equal(next))
	require.True(t, st.NextFire(h.now()).Equal(next))
	require.False(t, st.NextFire(next.Add(time.Hour)).IsZero(), "the next one")
	st.Plan.Next = append(st.Plan.Next, next.AddDate(0, 0, 30))
	week := next.Add(7*24*time.Hour + time.Hour)
	require.False(t, st.NextFire(week).IsZero())
	require.Zero(t, st.NextFire(week.Add(time.Millisecond)), "no machine calls any more")
	require.NoError(t, operator.Forget(ctx, "job"))
	_, err = operator.Status(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
}
