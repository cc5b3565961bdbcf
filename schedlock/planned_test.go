package schedlock_test

import (
	"context"
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

// A fire time that came during a run is not overdue when the run has ended: it was skipped, and has been missed.
func TestNotOverdueAfterALongRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := clock(friday.Add(time.Minute))
	in := f.instance(nil, h.options())
	saturday := friday.AddDate(0, 0, 1)
	planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
	_, err := in.Do(ctxT(t), "job", func(context.Context, *schedlock.Run) error { h.set(saturday.Add(2 * time.Hour)); return nil }, schedlock.Tick(friday), planned)
	require.NoError(t, err)
	st, err := in.Status(ctxT(t), "job")
	require.NoError(t, err)
	require.Zero(t, st.Overdue(h.now()))
	require.Equal(t, saturday.Add(time.Hour), st.Missed(h.now()))
	sunday := friday.AddDate(0, 0, 2)
	require.Equal(t, sunday.Add(time.Hour), st.Overdue(sunday.Add(2*time.Hour)))
}

// A572: to resume a job that is not paused changes nothing, so that the night that was left out is missed still: "resume all jobs"
// after maintenance hid it from Status, jobs check and the alert, and OnMisfire did not make it up. Of two Resumes after a Pause
// the first counts.
func TestResumeOfAJobThatIsNotPaused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday.Add(time.Minute))
	operator := f.instance(nil, h.options())
	planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
	in := f.instance(nil, h.options())
	_, err := in.Do(ctx, "job", nothing, schedlock.Tick(friday), planned)
	require.NoError(t, err)
	require.NoError(t, in.sess.Close(ctx))
	missed := func() time.Time {
		t.Helper()
		st, err := operator.Status(ctx, "job")
		require.NoError(t, err)
		return st.Missed(h.now())
	}
	saturday := friday.AddDate(0, 0, 1)
	h.set(saturday.Add(3 * time.Hour))
	require.Equal(t, saturday.Add(time.Hour), missed())
	require.NoError(t, operator.Resume(ctx, "job"))
	require.Equal(t, saturday.Add(time.Hour), missed())
	require.Empty(t, f.Keys("/operation"))

	require.NoError(t, operator.Pause(ctx, "job", "maintenance"))
	require.NoError(t, operator.Resume(ctx, "job"))
	require.Zero(t, missed())
	sunday := saturday.AddDate(0, 0, 1)
	h.set(sunday.Add(3 * time.Hour))
	require.Equal(t, sunday.Add(time.Hour), missed())
	require.NoError(t, operator.Resume(ctx, "job"))
	require.Equal(t, sunday.Add(time.Hour), missed())
}

// A start that its plan says was due is overdue after half a minute, until it has come, or something keeps the job from it.
// Pausing and resuming the job skips it.
func TestOverdue(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday.Add(time.Minute))
	operator := f.instance(nil, h.options())
	planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
	run := func(tick time.Time) { // in a process that ends: no clock that it has published is left
		in := f.instance(nil, h.options())
		_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick), planned)
		require.NoError(t, err)
		require.NoError(t, in.sess.Close(ctx))
	}
	overdue := func() time.Time {
		st, err := operator.Status(ctx, "job")
		require.NoError(t, err)
		return st.Overdue(h.now())
	}
	run(friday)
	require.Zero(t, overdue())
	saturday := friday.AddDate(0, 0, 1)
	h.set(saturday.Add(time.Hour + 29*time.Second)) // a call may be an hour late
	require.Zero(t, overdue())
	h.set(saturday.Add(time.Hour + 30*time.Second))
	require.Equal(t, saturday.Add(time.Hour), overdue())
	require.NoError(t, operator.Pause(ctx, "job", "holidays"))
	require.Zero(t, overdue())
	require.NoError(t, operator.Resume(ctx, "job"))
	require.Zero(t, overdue(), "what came while it was paused is skipped")
	sunday := friday.AddDate(0, 0, 2)
	h.set(sunday.Add(2 * time.Hour))
	require.Equal(t, sunday.Add(time.Hour), overdue())
	run(sunday)
	require.Zero(t, overdue())
	_, err := operator.Do(ctx, "unplanned", nothing, schedlock.Tick(friday))
	require.NoError(t, err)
	st, err := operator.Status(ctx, "unplanned")
	require.NoError(t, err)
	require.Zero(t, st.Overdue(h.now()))
}
