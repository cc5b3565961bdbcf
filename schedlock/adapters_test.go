package schedlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// The shapes of the libraries' types; the real ones are in integration/.
type (
	cronJob    interface{ Run() }
	cronFunc   func()
	gocronLock interface{ Unlock(context.Context) error }
	gocronLike interface {
		Lock(ctx context.Context, key string) (gocronLock, error)
	}
	grid time.Duration
	wait time.Duration
)

func (f cronFunc) Run() { f() }

func (g grid) Next(t time.Time) time.Time { return t.Truncate(time.Duration(g)).Add(time.Duration(g)) }

func (w wait) Next(t time.Time) time.Time { return t.Add(time.Duration(w)) }

// crontab is a cron of gocron's shape that knows one crontab.
type crontab struct{ grid }

func (c *crontab) IsValid(tab string, _ *time.Location, _ time.Time) error {
	d, err := time.ParseDuration(tab)
	c.grid = grid(d)
	return err
}

var _ gocronLike = (*gocronlock.Locker[gocronLock])(nil)

// hand is a clock that a test sets.
type hand struct{ at atomic.Pointer[time.Time] }

func clock(t time.Time) *hand { h := &hand{}; h.set(t); return h }

func (h *hand) set(t time.Time) { h.at.Store(&t) }
func (h *hand) now() time.Time  { return *h.at.Load() }

func (h *hand) options() *schedlock.Options { return &schedlock.Options{Now: h.now} }

// results collects the calls of Options.Done.
type results struct {
	mu  sync.Mutex
	all []schedlock.Result
	err []error
}

func (r *results) done(res schedlock.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.err = append(r.all, res), append(r.err, err)
}

func (r *results) outcomes() (out []schedlock.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		out = append(out, x.Outcome)
	}
	return out
}

// A schedule that counts from when it is asked is refused by a Job. With Periods in its place
// several processes with different phases start once in each period.
func TestJobWithoutFireTimes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	now := clock(time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC))
	a, b := f.instance(nil, now.options()), f.instance(nil, now.options())
	_, err := a.Job("job", wait(time.Minute), nothing)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	require.ErrorContains(t, err, "pass Periods")
	for _, period := range []time.Duration{0, -time.Minute, time.Microsecond, time.Second + 1} {
		_, err = a.Job("job", schedlock.Periods(period), nothing)
		require.ErrorIs(t, err, schedlock.ErrInvalid, period)
	}
	for _, s := range []schedlock.Schedule{grid(time.Minute), schedlock.Periods(time.Minute)} {
		_, err = a.Job("spaced", s, nothing, schedlock.AtLeast(time.Minute))
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		require.ErrorContains(t, err, "the next tick would be skipped")
	}
	_, err = a.Job("spaced", grid(time.Minute), nothing, schedlock.AtLeast(50*time.Second))
	require.NoError(t, err)
	one, err := a.Job("job", schedlock.Periods(time.Minute), nothing)
	require.NoError(t, err)
	two, err := b.Job("job", schedlock.Periods(time.Minute), nothing)
	require.NoError(t, err)
	for n := range 3 {
		for _, j := range []*schedlock.Job{one, two} {
			res, err := j.RunContext(ctx)
			require.NoError(t, err)
			require.Equal(t, time.Date(2026, 3, 1, 12, n, 0, 0, time.UTC), res.Tick)
			if j == one {
				require.Equal(t, schedlock.Ran, res.Outcome)
			} else {
				require.Equal(t, schedlock.Claimed, res.Outcome)
			}
			now.set(now.now().Add(30 * time.Second))
		}
	}
	for range 2 {
		res, err := one.Trigger(ctx)
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome, "it is no tick of the period")
	}
}

// Run by hand is for the tick that has come last, which starts once; Trigger is for now.
func TestRunByHandAndTrigger(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := clock(at.Add(-time.Second))
	a := f.instance(nil, now.options())
	job, err := a.Job("job", grid(time.Minute), nothing)
	require.NoError(t, err)
	require.Equal(t, at, job.Next(now.now()))
	now.set(at.Add(3 * time.Millisecond))
	for _, want := range []schedlock.Outcome{schedlock.Ran, schedlock.Claimed} {
		res, err := job.RunContext(ctx)
		require.NoError(t, err)
		require.Equal(t, want, res.Outcome)
		require.Equal(t, at, res.Tick)
	}
	for range 2 {
		res, err := job.Trigger(ctx)
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
		require.False(t, res.Tick.Before(now.now()))
	}
	now.set(at.Add(time.Minute))
	res, err := job.RunContext(ctx)
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
	require.Equal(t, at.Add(time.Minute), res.Tick)
}

// Trigger near a fire time. One that claims before the tick takes its place, since no tick
// starts after a later one; otherwise they are two runs, which do not overlap.
func TestTriggerNearAFireTime(t *testing.T) {
	t.Parallel()
	const trigger, run = 0, 1
	type call struct {
		at   time.Duration // since the fire time
		what int
		want schedlock.Outcome
	}
	for name, calls := range map[string][]call{
		"before, and has ended":               {{-3 * time.Millisecond, trigger, schedlock.Ran}, {0, run, schedlock.Ran}},
		"at the same time, first":             {{0, trigger, schedlock.Ran}, {0, run, schedlock.Claimed}},
		"at the same time, second":            {{0, run, schedlock.Ran}, {0, trigger, schedlock.Ran}},
		"after, and claims first":             {{3 * time.Millisecond, trigger, schedlock.Ran}, {4 * time.Millisecond, run, schedlock.Late}},
		"after, and claims second":            {{0, run, schedlock.Ran}, {3 * time.Millisecond, trigger, schedlock.Ran}},
		"twice after, and the next fire time": {{time.Second, trigger, schedlock.Ran}, {2 * time.Second, trigger, schedlock.Ran}, {time.Minute, run, schedlock.Ran}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			now := clock(at.Add(-time.Second))
			a, b := f.instance(nil, now.options()), f.instance(nil, now.options())
			var starts atomic.Int64
			jobs := [2]*schedlock.Job{}
			for i, in := range []instance{a, b} {
				var err error
				jobs[i], err = in.Job("job", grid(time.Minute), counted(&starts))
				require.NoError(t, err)
				jobs[i].Next(now.now())
			}
			want := 0
			for i, c := range calls {
				now.set(at.Add(c.at))
				call := jobs[1].RunContext
				if c.what == trigger {
					call = jobs[0].Trigger
				}
				res, err := call(ctx)
				require.NoError(t, err)
				require.Equal(t, c.want, res.Outcome, i)
				if c.want == schedlock.Ran {
					want++
				}
			}
			require.EqualValues(t, want, starts.Load())
			h, err := a.History(ctx, "job")
			require.NoError(t, err)
			require.Len(t, h, want)
		})
	}
	for _, first := range []int{trigger, run} {
		t.Run([]string{"while it runs", "while the tick runs"}[first], func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			now := clock(time.Date(2026, 3, 1, 12, 0, 0, 3e6, time.UTC))
			in := f.instance(nil, now.options())
			started, end, done := make(chan struct{}, 2), make(chan struct{}), make(chan answer, 1)
			job, err := in.Job("job", grid(time.Minute), func(context.Context, *schedlock.Run) error {
				started <- struct{}{}
				<-end
				return nil
			})
			require.NoError(t, err)
			calls := []func(context.Context) (schedlock.Result, error){job.Trigger, job.RunContext}
			go func() { res, err := calls[first](ctx); done <- answer{res, err} }()
			got(t, started, "it starts")
			now.set(now.now().Add(time.Minute))
			res, err := calls[1-first](ctx)
			require.NoError(t, err)
			require.Equal(t, schedlock.StillRunning, res.Outcome)
			close(end)
			require.Equal(t, schedlock.Ran, got(t, done, "it ends").res.Outcome)
			require.Empty(t, started)
		})
	}
}

// J25: the machine was suspended over several ticks. The latest starts, once, if it is not
// too late for it; those before are left out.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts []schedlock.JobOption
		want schedlock.Outcome
	}{
		"before the next fire time":            {nil, schedlock.Ran},
		"before the next fire time, with Once": {[]schedlock.JobOption{schedlock.OnMisfire(schedlock.Once)}, schedlock.Ran},
		"LateBy":                               {[]schedlock.JobOption{schedlock.LateBy(10 * time.Second)}, schedlock.Late},
		"LateBy, with Once":                    {[]schedlock.JobOption{schedlock.LateBy(10 * time.Second), schedlock.OnMisfire(schedlock.Once)}, schedlock.Late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			now := clock(at.Add(-time.Second))
			a := f.instance(nil, now.options())
			job, err := a.Job("job", grid(time.Minute), nothing, tt.opts...)
			require.NoError(t, err)
			job.Next(now.now())
			now.set(at.Add(150 * time.Second)) // the timer of the tick fires now
			res, err := job.RunContext(ctx)
			require.NoError(t, err)
			require.Equal(t, []any{tt.want, at.Add(2 * time.Minute)}, []any{res.Outcome, res.Tick})
			job.Next(now.now())
			now.set(at.Add(3 * time.Minute))
			res, err = job.RunContext(ctx)
			require.NoError(t, err)
			require.Equal(t, []any{schedlock.Ran, at.Add(3 * time.Minute)}, []any{res.Outcome, res.Tick})
		})
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	f := shared(t)
	now := clock(time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC))
	var reported results
	o := now.options()
	o.Done = reported.done
	a, b := f.instance(nil, o), f.instance(nil, o)
	for _, every := range []time.Duration{0, -1, time.Microsecond, time.Second + 1} {
		_, err := schedlock.Wrap[cronJob](a.Locker, "job", every)
		require.ErrorIs(t, err, schedlock.ErrInvalid, every)
	}
	_, err := schedlock.Wrap[cronJob](a.Locker, "", time.Minute)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	_, err = schedlock.Wrap[interface {
		Run()
		Stop()
	}](a.Locker, "job", time.Minute)
	require.ErrorIs(t, err, schedlock.ErrInvalid)

	var starts atomic.Int64
	var jobs []cronJob
	for _, in := range []instance{a, b} {
		only, err := schedlock.Wrap[cronJob](in.Locker, "job", time.Minute)
		require.NoError(t, err)
		jobs = append(jobs, only(cronFunc(func() { starts.Add(1) })))
	}
	for n := range 3 {
		for _, j := range jobs {
			j.Run()
			now.set(now.now().Add(30 * time.Second))
		}
		require.EqualValues(t, n+1, starts.Load())
	}
	require.Equal(t, []schedlock.Outcome{schedlock.Ran, schedlock.Claimed, schedlock.Ran, schedlock.Claimed, schedlock.Ran, schedlock.Claimed}, reported.outcomes())
	broken, err := schedlock.Wrap[cronJob](a.Locker, "broken", time.Minute)
	require.NoError(t, err)
	require.PanicsWithValue(t, "oops", broken(cronFunc(func() { panic("oops") })).Run, "the library's Recover sees it")
	f.NoKeys("/lock")
}

// A lock of gocron's is a run of the tick: from Lock to Unlock, with a history, once for
// each period whenever the timers fire (gocron #841).
func TestGocronLocker(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	now := clock(time.Date(2026, 3, 1, 12, 0, 10, 0, time.UTC))
	a, b := f.instance(nil, now.options()), f.instance(nil, now.options())
	for _, every := range []time.Duration{0, -1, time.Microsecond, time.Second + 1} {
		_, err := gocronlock.New[gocronLock](a.Locker, every)
		require.ErrorIs(t, err, schedlock.ErrInvalid, every)
	}
	_, err := gocronlock.New[interface {
		gocronLock
		More()
	}](a.Locker, time.Minute)
	require.ErrorIs(t, err, schedlock.ErrInvalid)

	one, err := gocronlock.New[gocronLock](a.Locker, time.Minute)
	require.NoError(t, err)
	two, err := gocronlock.New[gocronLock](b.Locker, time.Minute)
	require.NoError(t, err)
	_, err = one.Lock(ctx, "")
	require.ErrorIs(t, err, schedlock.ErrInvalid)

	lock, err := one.Lock(ctx, "job")
	require.NoError(t, err)
	r, ok := one.Running("job")
	require.True(t, ok)
	require.NoError(t, r.Check(ctx))
	skipped := func(l gocronLike, want schedlock.Outcome) {
		t.Helper()
		_, err := l.Lock(ctx, "job")
		var skip *gocronlock.SkippedError
		require.ErrorAs(t, err, &skip)
		require.Equal(t, want, skip.Result.Outcome)
		require.ErrorContains(t, err, want.String())
	}
	skipped(two, schedlock.Claimed)
	now.set(now.now().Add(time.Minute))
	skipped(two, schedlock.StillRunning)
	require.NoError(t, lock.Unlock(ctx))
	require.NoError(t, lock.Unlock(ctx), "once more changes nothing")
	_, ok = one.Running("job")
	require.False(t, ok)
	h, err := b.History(ctx, "job")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunDone, h[0].State, "it is recorded when Unlock returns")

	// The task took no time, and the other's timer is late: the tick stays claimed.
	lock, err = two.Lock(ctx, "job")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(ctx))
	skipped(one, schedlock.Claimed)
	require.NoError(t, a.Pause(ctx, "job", "holidays"))
	now.set(now.now().Add(time.Minute))
	skipped(one, schedlock.Paused)
	f.NoKeys("/lock")
}

// J7: gocron's shutdown cancels the ctx of Unlock before the task has ended. The run continues
// until then, and its end is recorded.
func TestGocronUnlockWithCanceledCtx(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	l, err := gocronlock.New[gocronLock](a.Locker, time.Hour)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctxT(t))
	lock, err := l.Lock(ctx, "job")
	require.NoError(t, err)
	r, ok := l.Running("job")
	require.True(t, ok)
	cancel()
	require.NoError(t, r.Check(ctxT(t)), "the task continues")
	_, err = l.Lock(ctx, "other")
	require.ErrorIs(t, err, context.Canceled, "a start is bounded by ctx")
	require.NoError(t, r.Context().Err())
	if err := lock.Unlock(ctx); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, a.sess.Close(ctxT(t)), "it waits for the record")
	h, err := f.instance(nil, nil).History(ctxT(t), "job")
	require.NoError(t, err)
	require.Len(t, h, 1)
	require.Equal(t, schedlock.RunDone, h[0].State)
}

// A job of gocron's that has no name has its function's, in which the path of a package
// stands. It is the same job under that name everywhere, and no other.
func TestGocronDefaultNames(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	l, err := gocronlock.New[gocronLock](a.Locker, time.Hour)
	require.NoError(t, err)
	names := []string{"example.com/shop/jobs.sweep", "example.com/shop.jobs.sweep", "example.com%2Fshop%2Fjobs.sweep", "main.(*T).sweep-fm", "example.com/shop/jobs"}
	for _, name := range names {
		lock, err := l.Lock(ctx, name)
		require.NoError(t, err, name)
		r, ok := l.Running(name)
		require.True(t, ok)
		require.Equal(t, name, r.Job())
		require.NoError(t, lock.Unlock(ctx))
		h, err := a.History(ctx, name)
		require.NoError(t, err)
		require.Len(t, h, 1, name)
	}
	jobs, err := a.Jobs(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, names, jobs)
}

// A call of gocron's that its locker refuses is reported to Options.Done as well: gocron
// itself says nothing.
func TestGocronReportsErrorsBeforeTheCall(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var reported results
	a := f.instance(nil, &schedlock.Options{Done: reported.done})
	locker, err := gocronlock.New[gocronLock](a.Locker, time.Hour)
	require.NoError(t, err)
	daily, err := gocronlock.NewCron[gocronLock](a.Locker, &crontab{})
	require.NoError(t, err)
	_, noName := locker.Lock(ctx, "")
	_, control := daily.Lock(ctx, "\x00")
	_, notSet := daily.Lock(ctx, "job")
	require.NoError(t, daily.IsValid("1h", time.UTC, time.Now()))
	require.NoError(t, daily.Plan("job"))
	_, other := daily.Lock(ctx, "other")
	reported.mu.Lock()
	defer reported.mu.Unlock()
	require.Equal(t, []error{noName, control, notSet, other}, reported.err)
	for i, name := range []string{"", "\x00", "job", "other"} {
		require.ErrorIs(t, reported.err[i], schedlock.ErrInvalid)
		require.Equal(t, schedlock.Result{Job: name}, reported.all[i])
	}
}

// With gocron's Cron the tick is the fire time that its Next returned.
func TestGocronCron(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := clock(at.Add(-time.Second))
	a, b := f.instance(nil, now.options()), f.instance(nil, now.options())
	_, err := gocronlock.NewCron[gocronLock](a.Locker, &crontab{}, schedlock.AtMost(-1))
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	_, err = gocronlock.NewCron[gocronLock](a.Locker, nil)
	require.ErrorIs(t, err, schedlock.ErrInvalid)

	var crons []*gocronlock.Cron[gocronLock]
	for _, in := range []instance{a, b} {
		c, err := gocronlock.NewCron[gocronLock](in.Locker, &crontab{})
		require.NoError(t, err)
		_, err = c.Lock(ctx, "job")
		require.ErrorContains(t, err, "WithCronImplementation")
		require.Error(t, c.IsValid("nonsense", time.UTC, now.now()))
		require.NoError(t, c.IsValid("1m", time.UTC, now.now()))
		require.Equal(t, at, c.Next(now.now()))
		crons = append(crons, c)
	}
	for n := range 3 {
		for i, c := range crons {
			now.set(at.Add(time.Duration(n)*time.Minute + time.Duration(i*400-5)*time.Millisecond))
			lock, err := c.Lock(ctx, "job")
			if i == 0 {
				require.NoError(t, err)
				r, _ := c.Running("job")
				require.Equal(t, at.Add(time.Duration(n)*time.Minute), r.Tick())
				require.NoError(t, lock.Unlock(ctx))
			} else {
				var skip *gocronlock.SkippedError
				require.True(t, errors.As(err, &skip), err)
				require.Equal(t, schedlock.Claimed, skip.Result.Outcome)
			}
			c.Next(at.Add(time.Duration(n) * time.Minute))
		}
	}
	_, err = crons[0].Lock(ctx, "other")
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	require.ErrorContains(t, err, `belongs to job "job"`)
}

// A lock that waits for etcd waits until its ctx ends, or no longer than the period.
func TestGocronLockWithoutEtcd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	l, err := gocronlock.New[gocronLock](a.Locker, time.Second)
	require.NoError(t, err)
	a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1})
	_, err = l.Lock(ctxT(t), "job")
	var skip *gocronlock.SkippedError
	require.ErrorAs(t, err, &skip)
	require.Equal(t, schedlock.Late, skip.Result.Outcome)
}
