package schedlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// K26: the plan of a job that no process has any more, as of a line that was removed from a crontab, is removed a week after the
// last one that had it was alive; that of calls a week after the fire time for which none has come. The plan of a job that a
// process has gets a stamp each day and stays, and so does the history.
func TestPlansAreRetired(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	const day = 24 * time.Hour
	operator, in := f.instance(nil, schedlock.Beating(h.options())), f.instance(nil, schedlock.Beating(h.options()))
	former := f.instance(nil, schedlock.Beating(h.options()))
	_, err := former.Do(ctx, "called", nothing, schedlock.Tick(friday), schedlock.Planned(nine{}, time.Hour))
	require.NoError(t, err)
	for name, of := range map[string]instance{"removed": former, "kept": in} {
		of.begin(t, name)
		operator.waitPlan(t, name, func(p record.Plan, ok bool) bool { return ok && p.AliveMS == h.now().UnixMilli() })
	}
	require.Eventually(t, func() bool {
		st, err := operator.Status(ctx, "removed")
		return err == nil && !st.NextFire(h.now()).IsZero()
	}, soon, 20*time.Millisecond)
	require.NoError(t, former.sess.Close(ctx))
	st, err := operator.Status(ctx, "removed")
	require.NoError(t, err)
	require.Zero(t, st.NextFire(h.now()), "it rings no more at once")

	in.knowsClocks(t, 1)
	days := func(n time.Duration) {
		h.set(friday.Add(n))
		require.Eventually(t, func() bool { return !schedlock.Slowest(in.Locker).Before(h.now()) }, soon, 20*time.Millisecond)
		for look := range 2 { // the second one begins after all of the first
			name := fmt.Sprintf("look-%v-%d", n, look)
			in.begin(t, name)
			operator.waitPlan(t, name, func(_ record.Plan, ok bool) bool { return ok })
		}
	}
	has := func(name string) (ok bool) {
		operator.waitPlan(t, name, func(_ record.Plan, is bool) bool { ok = is; return true })
		return ok
	}
	days(day)
	operator.waitPlan(t, "kept", func(p record.Plan, ok bool) bool { return ok && p.AliveMS == h.now().UnixMilli() })
	days(7 * day)
	require.True(t, has("removed"))
	operator.waitPlan(t, "kept", func(p record.Plan, ok bool) bool { return ok && p.AliveMS == h.now().UnixMilli() })
	days(7*day + time.Hour)
	operator.waitPlan(t, "removed", func(_ record.Plan, ok bool) bool { return !ok })
	_, err = operator.Status(ctx, "removed")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	require.True(t, has("called"))
	require.True(t, has("kept"))
	days(9 * day)
	operator.waitPlan(t, "called", func(_ record.Plan, ok bool) bool { return !ok })
	records, err := operator.History(ctx, "called")
	require.NoError(t, err)
	require.Len(t, records, 1)
}

// begin has a process use a job.
func (in instance) begin(t *testing.T, name string) {
	t.Helper()
	schedule := schedlock.Schedule(nine{})
	if name == "kept" {
		schedule = schedlock.Periods(500 * 24 * time.Hour) // its list does not run out
	}
	job, err := in.Job(name, schedule, nothing)
	require.NoError(t, err)
	job.Next(friday)
}

// waitPlan waits until the stored plan of a job is as a condition wants it.
func (in instance) waitPlan(t *testing.T, name string, is func(p record.Plan, ok bool) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := in.client.Get(ctxT(t), in.sess.NamespacePrefix()+"job/"+name+"/plan")
		if err != nil || len(resp.Kvs) == 0 {
			return err == nil && is(record.Plan{}, false)
		}
		p, ok := record.DecodePlan(resp.Kvs[0].Value)
		return is(p, ok && p.Former == "")
	}, soon, 20*time.Millisecond)
}

// B32: whether a plan counts no more is judged by the slowest clock that is known. A process whose clock is a month ahead
// removes no plan of a job that cron called yesterday, but one that no clock takes for alive.
func TestPlansAreRetiredByTheSlowestClock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	fast, right := clock(friday.AddDate(0, 1, 0)), clock(friday)
	options := func(h *hand) *schedlock.Options { return schedlock.Beating(h.options()) }
	former := f.instance(nil, clock(friday.AddDate(0, -1, 0)).options())
	_, err := former.Do(ctx, "old", nothing, schedlock.Tick(friday.AddDate(0, -1, 0)), schedlock.Planned(nine{}, time.Hour))
	require.NoError(t, err)
	require.NoError(t, former.sess.Close(ctx))
	in, other := f.instance(nil, options(fast)), f.instance(nil, options(right))
	_, err = other.Do(ctx, "called", nothing, schedlock.Tick(friday), schedlock.Planned(nine{}, time.Hour))
	require.NoError(t, err)
	in.begin(t, "kept")
	in.knowsClocks(t, 1)
	in.begin(t, "another")
	other.waitPlan(t, "old", func(_ record.Plan, ok bool) bool { return !ok })
	other.waitPlan(t, "called", func(_ record.Plan, ok bool) bool { require.True(t, ok); return true })
}

// knowsClocks waits until the clocks of so many other processes, and of no more, are known: after their next beats.
func (in instance) knowsClocks(t *testing.T, others int) {
	t.Helper()
	require.Eventually(t, func() bool {
		all := in.Clocks()
		return len(all) == others && !slices.ContainsFunc(all, func(c schedlock.Clock) bool { return !c.Known })
	}, soon, 20*time.Millisecond)
}

// A250: the plan of a job that is paused is not retired, however long that lasts: after the Resume it counts again.
func TestPlanOfAPausedJobStays(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	former := f.instance(nil, clock(friday).options())
	for _, name := range []string{"paused", "old"} {
		_, err := former.Do(ctx, name, nothing, schedlock.Tick(friday), schedlock.Planned(nine{}, time.Hour))
		require.NoError(t, err)
	}
	require.NoError(t, former.Pause(ctx, "paused", "moving house"))
	require.NoError(t, former.sess.Close(ctx))
	month := clock(friday.AddDate(0, 1, 0))
	in := f.instance(nil, schedlock.Beating(month.options()))
	f.instance(nil, schedlock.Beating(month.options()))
	left := in.sess.NamespacePrefix() + "job/removed/plan"
	_, err := in.client.Put(ctx, left, record.Plan{Schedule: "mine", DueMS: friday.UnixMilli()}.Removed(friday.UnixMilli()).Encode())
	require.NoError(t, err)
	in.begin(t, "kept")
	in.knowsClocks(t, 1)
	in.begin(t, "another")
	in.waitPlan(t, "old", func(_ record.Plan, ok bool) bool { return !ok })
	in.waitPlan(t, "paused", func(_ record.Plan, ok bool) bool { require.True(t, ok); return true })
	require.Eventually(t, func() bool { // A643
		resp, err := in.client.Get(ctx, left)
		return err == nil && resp.Count == 0
	}, soon, 20*time.Millisecond, "what was left of a plan")
	require.NoError(t, in.Resume(ctx, "paused"))
	st, err := in.Status(ctx, "paused")
	require.NoError(t, err)
	require.True(t, st.Plan.Expected(month.now()))
}
