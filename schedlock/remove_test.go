package schedlock_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// A268: a claim that is on its way to etcd when Job.Remove is called starts its run before Remove returns nil, and no call of
// the Job starts one afterwards.
func TestRemoveWaitsForAClaim(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, clock(friday).options())
	started, end := make(chan struct{}, 10), make(chan struct{})
	job, err := in.Job("job", nine{}, func(context.Context, *schedlock.Run) error {
		started <- struct{}{}
		<-end
		return nil
	})
	require.NoError(t, err)
	held := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.HoldRequest}) // the first one finds no settings
	done := make(chan answer, 1)
	go func() {
		res, err := job.RunContext(ctx)
		done <- answer{res, err}
	}()
	require.NoError(t, held.WaitHit(ctx))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, job.Remove(short), context.DeadlineExceeded)
	require.NoError(t, held.Release())
	require.NoError(t, job.Remove(ctx))
	got(t, started, "it has started")
	require.Empty(t, f.Keys("/plan"))
	close(end)
	require.Equal(t, schedlock.Ran, got(t, done, "it continues").res.Outcome)
	for name, call := range map[string]func(context.Context) (schedlock.Result, error){"run": job.RunContext, "trigger": job.Trigger} {
		_, err := call(ctx)
		require.ErrorIs(t, err, schedlock.ErrInvalid, name)
		require.ErrorContains(t, err, "removed", name)
	}
	require.Empty(t, started)
}

// A268: calls that wait when Job.Remove is called start nothing when the wait is over: for the loss of another process's run, as
// the library's call or to catch up, and between two attempts.
func TestRemoveEndsCallsThatWait(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, call := range map[string]func(job *schedlock.Job){
		"a call":      func(job *schedlock.Job) { _, _ = job.RunContext(context.Background()) },
		"to catch up": func(job *schedlock.Job) { job.Next(friday) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			at, catchUp := friday, name == "to catch up"
			if catchUp {
				at = saturday
			}
			in := f.instance(nil, clock(at.Add(time.Minute)).options())
			var starts atomic.Int64
			job, err := in.Job("job", nine{}, counted(&starts), schedlock.Retries(1), schedlock.OnMisfire(schedlock.Once))
			require.NoError(t, err)
			looks := in.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Match: func(_ string, msg any) bool {
				r, ok := msg.(*etcdserverpb.TxnRequest)
				return ok && len(r.Compare) == 0 && len(r.Success) > 3 && strings.Contains(r.String(), "/cooldown")
			}})
			returned := make(chan struct{})
			f.loseRun(ctx, friday, func() {
				go func() { defer close(returned); call(job) }()
				require.NoError(t, looks.WaitHit(ctx))
				require.NoError(t, job.Remove(ctx))
			})
			got(t, returned, "it returns")
			other := f.instance(nil, clock(at.Add(time.Minute)).options())
			res, err := other.Do(ctx, "job", nothing, schedlock.Tick(at), schedlock.Retries(1))
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome, "no process has started it")
			require.NoError(t, in.sess.Close(ctx))
			require.Zero(t, starts.Load())
		})
	}
	t.Run("the next attempt", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		in := f.instance(nil, clock(friday).options())
		var job *schedlock.Job
		attempts := 0
		job, err := in.Job("job", nine{}, func(ctx context.Context, _ *schedlock.Run) error {
			attempts++
			require.NoError(t, job.Remove(ctx))
			return errOwn
		}, schedlock.RetryFailed(2, time.Millisecond))
		require.NoError(t, err)
		res, err := job.RunContext(ctxT(t))
		require.Equal(t, errOwn, err)
		require.Equal(t, []any{schedlock.Failed, 1, 1}, []any{res.Outcome, res.Attempt, attempts})
	})
}

// A273: a plan that is on its way to etcd when Job.Remove is called is removed as well.
func TestRemoveWaitsForThePlan(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, schedlock.Settled(clock(friday).options()))
	job, err := in.Job("job", nine{}, nothing)
	require.NoError(t, err)
	held := in.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) == 1 && strings.HasSuffix(string(r.Success[0].GetRequestPut().GetKey()), "/plan")
	}})
	job.Next(friday)
	require.NoError(t, held.WaitHit(ctx))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, job.Remove(short), context.DeadlineExceeded)
	require.NoError(t, held.Release())
	require.NoError(t, job.Remove(ctx))
	require.Empty(t, f.Keys("/plan"))
	removed, err := in.Job("never asked", nine{}, nothing)
	require.NoError(t, err)
	require.NoError(t, removed.Remove(ctx))
	removed.Next(friday)
	asked, err := in.Job("asked", nine{}, nothing)
	require.NoError(t, err)
	asked.Next(friday)
	in.waitPlan(t, "asked", func(_ record.Plan, ok bool) bool { return ok })
	in.waitPlan(t, "never asked", func(_ record.Plan, ok bool) bool { require.False(t, ok); return true })
}

// A268: the same of a job of gocron that was planned: it starts nothing after Remove, until gocron has the job again.
func TestGocronAfterRemove(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, clock(friday).options())
	daily, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{})
	require.NoError(t, err)
	require.NoError(t, daily.Plan("job"))
	require.NoError(t, daily.IsValid("0 9 * * *", time.UTC, friday))
	require.NoError(t, daily.Remove(ctx))
	_, err = daily.Lock(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	require.Empty(t, f.Keys("/run/"))
	require.NoError(t, daily.IsValid("0 9 * * *", time.UTC, friday))
	lock, err := daily.Lock(ctx, "job")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(ctx))
}

// A275: when Job.Remove has returned, a new Job of the same process may have other settings: those of the former one are not in
// force any more. Beside another Job of the name they are.
func TestOtherSettingsAfterRemove(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	in := f.instance(nil, h.options())
	job := func(d time.Duration) *schedlock.Job {
		t.Helper()
		job, err := in.Job("job", nine{}, nothing, schedlock.AtMost(d))
		require.NoError(t, err)
		job.Next(h.now())
		return job
	}
	first := job(time.Minute)
	_, err := first.RunContext(ctx)
	require.NoError(t, err)
	second := job(time.Minute)
	require.NoError(t, first.Remove(ctx))
	_, err = in.Job("job", nine{}, nothing, schedlock.AtMost(time.Hour))
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	require.NoError(t, second.Remove(ctx))
	_, err = second.RunContext(ctx) // as a call that the cron library has begun before
	require.ErrorContains(t, err, "removed")
	third := job(time.Hour)
	h.set(friday.AddDate(0, 0, 1))
	res, err := third.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// A new Job of the name is there before Remove of the former one has etcd's answer: its settings stay in force, and its plan.
func TestNewJobBesideRemove(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, schedlock.Settled(clock(friday).options()))
	job := func(d time.Duration) (*schedlock.Job, error) {
		return in.Job("job", nine{}, nothing, schedlock.AtMost(d))
	}
	former, err := job(time.Minute)
	require.NoError(t, err)
	former.Next(friday)
	in.waitPlan(t, "job", func(_ record.Plan, ok bool) bool { return ok })
	require.Eventually(t, func() bool { return len(f.Keys("/jobs-of/")) == 1 }, soon, 20*time.Millisecond)
	held := in.client.Inject(embedtest.Fault{Method: "DeleteRange", Do: embedtest.HoldRequest}) // of the list of jobs
	removed := make(chan error, 1)
	go func() { removed <- former.Remove(ctx) }()
	require.NoError(t, held.WaitHit(ctx))
	next, err := job(time.Minute)
	require.NoError(t, err)
	next.Next(friday)
	require.NoError(t, held.Release())
	require.NoError(t, got(t, removed, "it returns"))
	_, err = job(time.Hour)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	require.Len(t, f.Keys("/plan"), 1)
}

// A573: of two Jobs of a name the newer one is removed, as when a change of the configuration is taken back: the one that stays
// has the plan, and runs what is requested. It had neither, and RequestRun returned nil.
func TestRemoveOfTheNewerJob(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in, operator := f.instance(nil, schedlock.Settled(clock(friday).options())), f.instance(nil, nil)
	ran := make(chan int, 8)
	job := func(n int) *schedlock.Job {
		j, err := in.Job("job", nine{}, func(context.Context, *schedlock.Run) error { ran <- n; return nil })
		require.NoError(t, err)
		j.Next(friday)
		in.waitPlan(t, "job", func(_ record.Plan, ok bool) bool { return ok })
		return j
	}
	one, two, three := job(1), job(2), job(3)
	require.NoError(t, two.Remove(ctx))
	require.NoError(t, three.Remove(ctx))
	in.waitPlan(t, "job", func(_ record.Plan, ok bool) bool { return ok })
	_, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.Equal(t, 1, got(t, ran, "the one that stays"))
	require.NoError(t, one.Remove(ctx))
	st, err := operator.Status(ctx, "job")
	require.NoError(t, err)
	require.Nil(t, st.Plan)
}

// stumbling is nine, but panics when a claim asks for the plan that goes with it.
type stumbling struct{ nine }

func (s stumbling) Next(t time.Time) time.Time {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "(*claim).creation") {
			panic("stumbles")
		}
		if !more {
			return s.nine.Next(t)
		}
	}
}

// A schedule panics in a claim, and the cron library recovers that: Job.Remove does not wait for the claim.
func TestRemoveAfterAPanicOfTheSchedule(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	in := shared(t).instance(nil, clock(friday).options())
	job, err := in.Job("job", stumbling{}, nothing)
	require.NoError(t, err)
	job.Next(friday)
	require.PanicsWithValue(t, "stumbles", func() { _, _ = job.RunContext(ctx) })
	require.NoError(t, job.Remove(ctx))
}

// A575: a process has removed a job that it had without a Job or a plan. Its settings are not in force any more: another process
// has others, and runs the next tick. The job is forgotten when no process lives that has claimed a recorded tick.
func TestRemoveWithoutPlan(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t *testing.T, in instance, d time.Duration) (run func() error, remove func(context.Context) error){
		"gocronlock.NewCron": func(t *testing.T, in instance, d time.Duration) (func() error, func(context.Context) error) {
			c, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{}, schedlock.AtMost(d))
			require.NoError(t, err)
			require.NoError(t, c.Remove(ctxT(t)), "it was not called")
			require.NoError(t, c.IsValid("0 9 * * *", time.UTC, friday))
			return lockOnce(t, c), c.Remove
		},
		"gocronlock.New": func(t *testing.T, in instance, d time.Duration) (func() error, func(context.Context) error) {
			g, err := gocronlock.New[gocronLock](in.Locker, 24*time.Hour, schedlock.AtMost(d))
			require.NoError(t, err)
			return lockOnce(t, g), func(ctx context.Context) error { return in.Remove(ctx, "job") }
		},
		"Do": func(t *testing.T, in instance, d time.Duration) (func() error, func(context.Context) error) {
			return func() error {
				res, err := in.Do(ctxT(t), "job", nothing, schedlock.Every(24*time.Hour), schedlock.AtMost(d))
				require.True(t, err != nil || res.Outcome == schedlock.Ran, res)
				return err
			}, func(ctx context.Context) error { return in.Remove(ctx, "job") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday)
			a, b, operator := f.instance(nil, h.options()), f.instance(nil, schedlock.Settled(h.options())), f.instance(nil, nil)
			first, remove := use(t, a, time.Minute)
			require.NoError(t, first())
			require.ErrorIs(t, operator.Forget(ctx, "job"), schedlock.ErrInUse)
			require.NoError(t, remove(ctx))
			require.Empty(t, f.Keys("/settings"))
			require.NoError(t, remove(ctx), "again")
			h.set(friday.AddDate(0, 0, 1))
			second, remove := use(t, b, time.Hour)
			require.NoError(t, second())
			require.NoError(t, remove(ctx))
			require.ErrorContains(t, operator.Forget(ctx, "job"), "has run it")
			require.NoError(t, a.sess.Close(ctx))
			require.NoError(t, b.sess.Close(ctx))
			require.NoError(t, operator.Forget(ctx, "job"))
		})
	}
}

// lockOnce calls as gocron does.
func lockOnce(t *testing.T, g interface {
	Lock(ctx context.Context, key string) (gocronLock, error)
}) func() error {
	return func() error {
		lock, err := g.Lock(ctxT(t), "job")
		if err != nil {
			return err
		}
		return lock.Unlock(ctxT(t))
	}
}

// A575: without a plan, too, a job of gocron starts nothing after Remove until gocron sets the crontab, and Remove waits for a
// claim that is on its way.
func TestRemoveWithoutPlanEndsCalls(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	in := f.instance(nil, h.options())
	c, err := gocronlock.NewCron[gocronLock](in.Locker, anyCron{})
	require.NoError(t, err)
	require.NoError(t, c.IsValid("0 9 * * *", time.UTC, friday))
	held := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, Do: embedtest.HoldRequest}) // the first one finds no settings
	run, done := lockOnce(t, c), make(chan error, 1)
	go func() { done <- run() }()
	require.NoError(t, held.WaitHit(ctx))
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Remove(short), context.DeadlineExceeded)
	require.NoError(t, held.Release())
	require.NoError(t, got(t, done, "it runs"))
	require.NoError(t, c.Remove(ctx))
	require.Empty(t, f.Keys("/settings"))
	require.Len(t, f.Keys("/plan"), 1, "that of the claim")
	h.set(friday.AddDate(0, 0, 1))
	require.ErrorIs(t, run(), schedlock.ErrInvalid)
	require.NoError(t, c.IsValid("0 9 * * *", time.UTC, friday))
	require.NoError(t, run())
}

// A575: Locker.Remove is not for a job that this process has by a Job or a plan, and an Adapter of Periods has no job of its own.
func TestRemoveByName(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in := f.instance(nil, clock(friday).options())
	job, err := in.Job("job", nine{}, nothing)
	require.NoError(t, err)
	job.Next(friday)
	require.ErrorIs(t, in.Remove(ctx, "job"), schedlock.ErrInUse)
	require.NoError(t, job.Remove(ctx))
	require.NoError(t, in.Remove(ctx, "job"))
	require.ErrorIs(t, in.Remove(ctx, ""), schedlock.ErrInvalid)
	a, err := schedlock.NewAdapter(in.Locker, schedlock.Periods(time.Hour))
	require.NoError(t, err)
	require.ErrorIs(t, a.Remove(ctx), schedlock.ErrInvalid)
}
