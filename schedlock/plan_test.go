package schedlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// K14: a job that was deployed and has not run yet is there: with its schedule and its next fire times, which stay
// when its process has ended; it can be triggered and paused, and forgotten when no process has it any more.
func TestPlanOfAJobThatNeverRan(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday.Add(-time.Hour))
	operator := f.instance(nil, h.options())
	in := f.instance(nil, schedlock.Settled(h.options()))
	var starts atomic.Int64
	job, err := in.Job("job", schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, counted(&starts))
	require.NoError(t, err)
	_, err = operator.Status(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	job.Next(h.now())
	st := operator.planned(t, friday)
	require.Nil(t, st.Last)
	require.Equal(t, []any{"0 9 * * *", "UTC"}, []any{st.Plan.Text, st.Plan.Zone})
	require.True(t, st.Plan.Next[2].Equal(friday.AddDate(0, 0, 2)))
	require.Eventually(t, func() bool {
		st, err = operator.Status(ctx, "job")
		return err == nil && st.NextFire(h.now()).Equal(friday)
	}, soon, 20*time.Millisecond)
	names, err := operator.Jobs(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"job"}, names)
	require.NoError(t, operator.Pause(ctx, "job", "not yet"))
	st, err = operator.Status(ctx, "job")
	require.NoError(t, err)
	require.Zero(t, st.NextFire(h.now()))
	require.NoError(t, operator.Resume(ctx, "job"))
	id, err := operator.RequestRun(ctx, "job", "smoke test")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		rec, err := operator.Requested(ctx, "job", id)
		return err == nil && rec.State == schedlock.RunDone
	}, soon, 20*time.Millisecond, "it is not active any more at the fire time")

	h.set(friday)
	res, err := job.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	st, err = operator.Status(ctx, "job")
	require.NoError(t, err)
	require.True(t, st.Plan.Due.Equal(friday.AddDate(0, 0, 1)), "the claim has written it")
	require.NoError(t, in.sess.Close(ctx))
	st, err = operator.Status(ctx, "job")
	require.NoError(t, err)
	require.True(t, st.Plan.Due.Equal(friday.AddDate(0, 0, 1)), "it stays")
	require.Zero(t, st.NextFire(h.now()), "no live process has it")
	require.NoError(t, operator.Forget(ctx, "job"))
	_, err = operator.Status(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
}

// K23: when the next fire times that are stored have passed, the next one is not known: the later ones of a dense schedule
// are not the next.
func TestNextFireOfADenseSchedule(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := clock(friday)
	in := f.instance(nil, schedlock.Settled(h.options()))
	job, err := in.Job("job", grid(time.Minute), nothing)
	require.NoError(t, err)
	job.Next(h.now())
	st := in.planned(t, friday.Add(time.Minute))
	require.Eventually(t, func() bool {
		st, err = in.Status(ctxT(t), "job")
		return err == nil && !st.NextFire(friday).IsZero()
	}, soon, 20*time.Millisecond, "it says that it has the job after the plan")
	require.True(t, st.NextFire(friday.Add(2*time.Minute)).Equal(friday.Add(3*time.Minute)))
	require.Zero(t, st.NextFire(friday.Add(3*time.Minute)))
	require.Len(t, st.Plan.Next, 3)
}

// planned waits until the job has a plan that is due at a time.
func (in instance) planned(t *testing.T, due time.Time) (st schedlock.Status) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		st, err = in.Status(ctxT(t), "job")
		return err == nil && st.Plan != nil && st.Plan.Due.Equal(due)
	}, soon, 20*time.Millisecond)
	return st
}

// A process that has a job and has not run it is known: it is not forgotten.
func TestForgetAJobThatAProcessHas(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, schedlock.Settled(nil))
	operator := f.instance(nil, nil)
	job, err := in.Job("job", nine{}, nothing)
	require.NoError(t, err)
	job.Next(time.Now())
	require.Eventually(t, func() bool { _, err := operator.Status(ctx, "job"); return err == nil }, soon, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		resp, err := f.Client().Get(ctx, in.sess.NamespacePrefix()+"jobs-of/", clientv3.WithPrefix())
		return err == nil && resp.Count == 1
	}, soon, 20*time.Millisecond)
	err = operator.Forget(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrInUse)
	require.ErrorContains(t, err, in.sess.Owner())
	require.NoError(t, in.sess.Close(ctx))
	require.NoError(t, operator.Forget(ctx, "job"))
}

// K15: a fleet that was down at the first tick of a job has missed it.
func TestOnceOfAJobThatNeverRan(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, x := range map[string]struct {
		begins        time.Time
		paused        bool
		planned, want bool
	}{
		"before the first tick":     {friday.Add(-time.Minute), false, true, false},
		"after the first tick":      {friday.Add(time.Hour), false, true, true},
		"after two":                 {saturday.Add(time.Hour), false, true, true},
		"paused at the first tick":  {friday.Add(time.Hour), true, true, false},
		"no process has planned it": {friday.Add(time.Hour), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday.Add(-time.Hour))
			if x.planned {
				in := f.instance(nil, schedlock.Settled(h.options()))
				job, err := in.Job("job", nine{}, nothing, schedlock.OnMisfire(schedlock.Once), schedlock.Retries(1))
				require.NoError(t, err)
				job.Next(h.now())
				in.planned(t, friday)
				if x.paused {
					require.NoError(t, in.Pause(ctx, "job", "not yet"))
					h.set(friday.Add(time.Minute))
					require.NoError(t, in.Resume(ctx, "job"))
				}
				require.NoError(t, in.sess.Close(ctx))
			}
			in, starts, reported := f.begins(x.begins)
			if x.want {
				res := got(t, reported, "it has caught up")
				require.Equal(t, schedlock.Ran, res.Outcome)
				require.Equal(t, x.begins.Add(-time.Hour), res.Tick)
				return
			}
			require.NoError(t, in.sess.Close(ctx))
			require.Zero(t, starts.Load())
		})
	}
}

// K27: ticks that AtLeast skips on purpose are not due, and not shown as the next ones.
func TestPlanAfterACooldown(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := clock(friday)
	in := f.instance(nil, schedlock.Settled(h.options()))
	job, err := in.Job("job", nine{}, nothing, schedlock.AtLeast(36*time.Hour))
	require.NoError(t, err)
	job.Next(h.now())
	in.planned(t, friday.AddDate(0, 0, 1))
	res, err := job.RunContext(ctxT(t))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	st := in.planned(t, friday.AddDate(0, 0, 2))
	require.True(t, st.NextFire(h.now()).Equal(friday.AddDate(0, 0, 2)))
}

// K28: when a job of a dense schedule is resumed, its processes write which fire time is due next: the list of those before
// has one in ten minutes and one in an hour.
func TestPlanAfterAResume(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	operator, in := f.instance(nil, nil), f.instance(nil, schedlock.Settled(h.options()))
	job, err := in.Job("job", grid(time.Minute), nothing)
	require.NoError(t, err)
	job.Next(h.now())
	operator.planned(t, friday.Add(time.Minute))
	require.NoError(t, operator.Pause(ctx, "job", "moving house"))
	require.NoError(t, operator.Resume(ctx, "job"))
	require.NoError(t, operator.Pause(ctx, "job", "moving house again"))
	h.set(friday.Add(20 * time.Minute))
	require.NoError(t, operator.Resume(ctx, "job"))
	st := operator.planned(t, friday.Add(21*time.Minute))
	require.True(t, st.Plan.Next[1].Equal(friday.Add(22*time.Minute)))
}

// A job of periods that ran has no next fire time after Remove, although the process whose claim has stored its settings
// lives (A220 in internal/proof/tested-failures.md).
func TestRemoveOfPeriods(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	operator := f.instance(nil, nil)
	var jobs []*schedlock.Job
	for range 2 {
		job, err := f.instance(nil, schedlock.Settled(nil)).Job("job", schedlock.Periods(time.Hour), nothing)
		require.NoError(t, err)
		job.Next(time.Now())
		jobs = append(jobs, job)
	}
	res, err := jobs[0].RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	next := func() time.Time {
		st, err := operator.Status(ctx, "job")
		require.NoError(t, err)
		return st.NextFire(time.Now())
	}
	require.Eventually(t, func() bool {
		st, err := operator.Status(ctx, "job")
		return err == nil && st.Plan != nil && st.Plan.Live
	}, soon, 20*time.Millisecond)
	require.NoError(t, jobs[0].Remove(ctx))
	require.NotZero(t, next(), "another process has it")
	require.NoError(t, jobs[1].Remove(ctx))
	require.Zero(t, next())
}

// Job.Remove leaves the settings of a live process that uses the job without a plan, by Do, also if that one has other jobs by
// Job: a third process with other settings gets ErrSettings (A226 in internal/proof/tested-failures.md).
func TestRemoveLeavesTheSettingsOfOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	calls, has, third := f.instance(nil, schedlock.Settled(nil)), f.instance(nil, schedlock.Settled(nil)), f.instance(nil, nil)
	other, err := calls.Job("another", nine{}, nothing)
	require.NoError(t, err)
	other.Next(time.Now())
	res, err := calls.Do(ctx, "job", nothing, schedlock.Every(time.Hour))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	job, err := has.Job("job", schedlock.Periods(time.Hour), nothing)
	require.NoError(t, err)
	job.Next(time.Now())
	for name, in := range map[string]instance{"job": has, "another": calls} {
		in.waitPlan(t, name, func(_ record.Plan, ok bool) bool { return ok })
	}
	require.Eventually(t, func() bool {
		st, err := third.Status(ctx, "another")
		return err == nil && st.Plan != nil && st.Plan.Live
	}, soon, 20*time.Millisecond)
	require.NoError(t, job.Remove(ctx))
	has.waitPlan(t, "job", func(_ record.Plan, ok bool) bool { require.False(t, ok); return true })
	st, err := third.Status(ctx, "job")
	require.NoError(t, err)
	require.NotZero(t, st.NextFire(time.Now()), "the next period of the calls")
	_, err = third.Do(ctx, "job", nothing, schedlock.Tick(time.Now()), schedlock.AtLeast(time.Minute))
	require.ErrorIs(t, err, schedlock.ErrSettings)
}

// K14: the plan of a job goes with the last process that has removed it, and that process is known no more.
func TestRemove(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	operator := f.instance(nil, nil)
	users := func() (n int64) {
		resp, err := f.Client().Get(ctx, operator.sess.NamespacePrefix()+"jobs-of/", clientv3.WithPrefix())
		require.NoError(t, err)
		return resp.Count
	}
	var jobs []*schedlock.Job
	for range 2 {
		job, err := f.instance(nil, schedlock.Settled(nil)).Job("job", nine{}, nothing)
		require.NoError(t, err)
		job.Next(time.Now())
		jobs = append(jobs, job)
	}
	require.Eventually(t, func() bool { return users() == 2 }, soon, 20*time.Millisecond)
	require.NoError(t, jobs[0].Remove(ctx))
	require.EqualValues(t, 1, users())
	st, err := operator.Status(ctx, "job")
	require.NoError(t, err)
	require.NotNil(t, st.Plan, "another process has it")
	require.NoError(t, jobs[1].Remove(ctx))
	require.Zero(t, users())
	_, err = operator.Status(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	require.NoError(t, jobs[1].Remove(ctx))
}
