package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

var (
	_ gocron.Locker = (*gocronlock.Locker[gocron.Lock])(nil)
	_ gocron.Locker = (*gocronlock.Cron[gocron.Lock])(nil)
	_ gocron.Cron   = (*gocronlock.Cron[gocron.Lock])(nil)
)

// scheduler makes a scheduler of gocron's, which is shut down when the test ends.
func scheduler(t testing.TB, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(append(opts, gocron.WithStopTimeout(soon))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

// gocron #841: interval jobs whose schedulers were started at different times. With a lock
// by name each scheduler runs the task in each period; here one does.
func TestGocronIntervals(t *testing.T) {
	t.Parallel()
	const period = time.Second
	all := fleet(t, 5, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	for i, in := range all {
		locker, err := gocronlock.New[gocron.Lock](in.Locker, period)
		require.NoError(t, err)
		sched := scheduler(t, gocron.WithDistributedLocker(locker))
		_, err = sched.NewJob(gocron.DurationJob(period), gocron.NewTask(func() {
			r, ok := locker.Running("sweep")
			if !ok {
				t.Error("no run continues")
				return
			}
			s.add(r.Tick())
		}), gocron.WithName("sweep"))
		require.NoError(t, err)
		time.Sleep(time.Duration(i) * 70 * time.Millisecond)
		sched.Start()
	}
	s.wait(t, 5)
	s.once(t)
	h, err := all[0].History(ctxT(t), "sweep")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(h), 5)
	for _, r := range h[1:] {
		require.Equal(t, schedlock.RunDone, r.State)
	}
}

// Jobs at times of day: the tick is the fire time of gocron's own cron.
func TestGocronCron(t *testing.T) {
	t.Parallel()
	all := fleet(t, 4, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	for _, in := range all {
		each, err := gocronlock.NewCron[gocron.Lock](in.Locker, gocron.NewDefaultCron(true))
		require.NoError(t, err)
		sched := scheduler(t)
		job, err := sched.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
			r, ok := each.Running("zero")
			if !ok {
				t.Error("no run continues")
				return
			}
			s.add(r.Tick())
		}), gocron.WithName("zero"), gocron.WithCronImplementation(each), gocron.WithDistributedJobLocker(each))
		require.NoError(t, err)
		sched.Start()
		_, err = job.NextRuns(50) // as a page that shows them
		require.NoError(t, err)
	}
	s.wait(t, 4)
	s.once(t)
	for tick := range s.counts() {
		require.Zero(t, tick.Nanosecond())
	}
}

// A skipped tick returns its reason to gocron.
func TestGocronSkips(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})
	locker, err := gocronlock.New[gocron.Lock](all[0].Locker, 500*time.Millisecond)
	require.NoError(t, err)
	_, err = all[0].Do(ctx, "job", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Every(500*time.Millisecond))
	require.NoError(t, err)
	require.NoError(t, all[0].Pause(ctx, "job", "moving house"))
	skips := make(chan error, 100)
	sched := scheduler(t, gocron.WithDistributedLocker(locker))
	_, err = sched.NewJob(gocron.DurationJob(500*time.Millisecond), gocron.NewTask(func() { t.Error("it runs") }), gocron.WithName("job"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skips <- err })))
	require.NoError(t, err)
	sched.Start()
	for {
		select {
		case err := <-skips:
			var skip *gocronlock.SkippedError
			require.ErrorAs(t, err, &skip)
			if skip.Result.Outcome == schedlock.Claimed {
				continue // the period of the call above
			}
			require.Equal(t, schedlock.Paused, skip.Result.Outcome)
			return
		case <-time.After(soon):
			require.FailNow(t, "nothing was skipped")
		}
	}
}

// Shutdown during a run cancels the ctx of Unlock before the task has ended. The run lasts until the task
// has ended, and is recorded as done.
func TestGocronShutdown(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	locker, err := gocronlock.New[gocron.Lock](all[0].Locker, 500*time.Millisecond)
	require.NoError(t, err)
	begun, canceled, end := make(chan *schedlock.Run, 100), make(chan struct{}, 100), make(chan struct{})
	sched := scheduler(t, gocron.WithDistributedLocker(locker))
	_, err = sched.NewJob(gocron.DurationJob(500*time.Millisecond), gocron.NewTask(func(ctx context.Context) {
		r, _ := locker.Running("long")
		begun <- r
		<-ctx.Done()
		canceled <- struct{}{}
		<-end
	}), gocron.WithName("long"))
	require.NoError(t, err)
	sched.Start()
	var r *schedlock.Run
	select {
	case r = <-begun:
	case <-time.After(soon):
		require.FailNow(t, "it does not start")
	}
	down := make(chan error, 1)
	go func() { down <- sched.Shutdown() }()
	select {
	case <-canceled:
	case <-time.After(soon):
		require.FailNow(t, "Shutdown does not begin")
	}
	require.NoError(t, r.Check(ctx), "the task has not ended")
	close(end)
	require.NoError(t, <-down)
	require.NoError(t, all[0].sess.Close(ctx))
	h, err := all[1].History(ctx, "long")
	require.NoError(t, err)
	require.NotEmpty(t, h)
	for _, r := range h {
		require.Equal(t, schedlock.RunDone, r.State)
	}
}

func sweep() {}

// A job without a name has that of its function, and runs under it. A name that cannot be
// one is reported to Options.Done.
func TestGocronDefaultName(t *testing.T) {
	t.Parallel()
	type call struct {
		res schedlock.Result
		err error
	}
	done := make(chan call, 1000)
	all := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})
	lk, err := schedlock.New(all[0].sess, &schedlock.Options{Done: func(res schedlock.Result, err error) { done <- call{res, err} }})
	require.NoError(t, err)
	locker, err := gocronlock.New[gocron.Lock](lk, 100*time.Millisecond)
	require.NoError(t, err)
	sched := scheduler(t, gocron.WithDistributedLocker(locker))
	job, err := sched.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(sweep))
	require.NoError(t, err)
	require.Contains(t, job.Name(), "/", "gocron's default")
	bad, err := sched.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(sweep), gocron.WithName("a\nb"))
	require.NoError(t, err)
	sched.Start()
	ran, refused := false, false
	for !ran || !refused {
		select {
		case d := <-done:
			switch d.res.Job {
			case job.Name():
				require.NoError(t, d.err)
				ran = ran || d.res.Outcome == schedlock.Ran
			case bad.Name():
				require.ErrorIs(t, d.err, schedlock.ErrInvalid)
				refused = true
			}
		case <-time.After(soon):
			require.FailNow(t, "Done was not called", "ran %v, refused %v", ran, refused)
		}
	}
	h, err := all[0].History(ctxT(t), job.Name())
	require.NoError(t, err)
	require.NotEmpty(t, h)
}

// The names of gocron's lock errors come through.
func TestGocronBadNames(t *testing.T) {
	t.Parallel()
	all := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})
	locker, err := gocronlock.New[gocron.Lock](all[0].Locker, time.Second)
	require.NoError(t, err)
	_, err = locker.Lock(ctxT(t), string(make([]byte, 10_000)))
	require.True(t, errors.Is(err, schedlock.ErrInvalid), err)
}

var _ gocron.Elector = (*gocronlock.Elector)(nil)

// Only the leader's scheduler runs jobs, and the next leader's after it.
func TestGocronElector(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 3, concurrency.SessionOptions{}, schedlock.Options{})
	ran := make(chan int, 1000)
	var electors []*gocronlock.Elector
	for i, in := range all {
		el, err := concurrency.NewElection(in.sess, "cron")
		require.NoError(t, err)
		e, err := gocronlock.NewElector(el)
		require.NoError(t, err)
		electors = append(electors, e)
		sched := scheduler(t, gocron.WithDistributedElector(e))
		_, err = sched.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(func() { ran <- i }))
		require.NoError(t, err)
		sched.Start()
	}
	next := func() int {
		select {
		case i := <-ran:
			return i
		case <-time.After(soon):
			require.FailNow(t, "nothing runs")
			return 0
		}
	}
	first := next()
	for range 5 {
		require.Equal(t, first, next())
	}
	require.NoError(t, electors[first].Close(ctx))
	for i := first; i == first; i = next() {
	}
}

// gocron calls its listeners while it has the lock, so Fail can record their errors. Otherwise the history
// shows the run as done, even if the task was never called.
func TestGocronFail(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})
	locker, err := gocronlock.New[gocron.Lock](all[0].Locker, time.Hour)
	require.NoError(t, err)
	require.False(t, locker.Fail("panics", errors.New("no run continues")))
	for name, x := range map[string]struct {
		task func() error
		on   gocron.EventListener
		want string
	}{
		"fails": {func() error { return errors.New("oops") }, gocron.AfterJobRunsWithError(func(_ uuid.UUID, name string, err error) {
			locker.Fail(name, err)
			locker.Fail(name, errors.New("the first counts"))
		}), "oops"},
		"panics": {func() error { panic("oh") }, gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, name string, v any) {
			locker.Fail(name, fmt.Errorf("panic: %v", v))
		}), "panic: oh"},
		"not called": {func() error { t.Error("it was called"); return nil }, gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(_ uuid.UUID, name string) error {
			err := errors.New("not now")
			locker.Fail(name, err)
			return err
		}), "not now"},
	} {
		sched := scheduler(t, gocron.WithDistributedLocker(locker))
		_, err := sched.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(x.task), gocron.WithName(name), gocron.WithEventListeners(x.on), gocron.WithStartAt(gocron.WithStartImmediately()))
		require.NoError(t, err)
		sched.Start()
		require.Eventually(t, func() bool {
			h, err := all[0].History(ctx, name)
			return err == nil && len(h) == 1 && h[0].State != schedlock.RunActive
		}, soon, 10*time.Millisecond, name)
		h, err := all[0].History(ctx, name)
		require.NoError(t, err)
		require.Equal(t, schedlock.RunFailed, h[0].State, name)
		require.Equal(t, x.want, h[0].Error, name)
	}
}

// A job with Retries whose tick another process runs takes no place under
// WithLimitConcurrentJobs: the Locker is on standby, and has gocron run the job when that run is lost.
func TestGocronRetryWithALimit(t *testing.T) {
	t.Parallel()
	for _, singleton := range []bool{false, true} {
		t.Run(fmt.Sprintf("singleton %v", singleton), func(t *testing.T) {
			t.Parallel()
			ctx := ctxT(t)
			all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
			late, retries := schedlock.LateBy(2*time.Hour), schedlock.Retries(1)
			started, over := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(over)
				mine, leave := context.WithCancel(ctx)
				_, _ = all[0].Do(mine, "slow", func(ctx context.Context, _ *schedlock.Run) error {
					close(started)
					<-ctx.Done()
					leave() // the next attempt is the other's
					return nil
				}, schedlock.Tick(time.Now()), schedlock.Every(time.Hour), retries)
			}()
			<-started

			slow, err := gocronlock.New[gocron.Lock](all[1].Locker, time.Hour, late, retries)
			require.NoError(t, err)
			each, err := gocronlock.New[gocron.Lock](all[1].Locker, 100*time.Millisecond)
			require.NoError(t, err)
			again, fast := make(chan int, 100), make(chan struct{}, 100)
			sched := scheduler(t, gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule))
			named := []gocron.JobOption{gocron.WithName("slow"), gocron.WithDistributedJobLocker(slow), gocron.WithStartAt(gocron.WithStartImmediately())}
			if singleton {
				named = append(named, gocron.WithSingletonMode(gocron.LimitModeReschedule))
			}
			job, err := sched.NewJob(gocron.DurationJob(300*time.Millisecond), gocron.NewTask(func() {
				r, _ := slow.Running("slow")
				again <- r.Attempt()
			}), named...)
			require.NoError(t, err)
			slow.Retry("slow", job.RunNow)
			_, err = sched.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(func() { fast <- struct{}{} }),
				gocron.WithName("fast"), gocron.WithDistributedJobLocker(each))
			require.NoError(t, err)
			sched.Start()
			for range 7 {
				select {
				case <-fast:
				case <-time.After(soon):
					require.FailNow(t, "the fast job does not run")
				}
			}
			require.Empty(t, again)
			_, err = all[0].client.Revoke(ctx, all[0].sess.Lease())
			require.NoError(t, err)
			select {
			case n := <-again:
				require.Equal(t, 2, n)
			case <-time.After(soon):
				require.FailNow(t, "it is not run again")
			}
			<-over
		})
	}
}

// What gocronlock.NewCron returned is passed to gocron as its cron alone, so that no job is locked. That is
// logged once; and not for a job that has its lock, however often a page asks for fire times.
func TestGocronCronAlone(t *testing.T) {
	t.Parallel()
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprint(alone), func(t *testing.T) {
			t.Parallel()
			core, lines := observer.New(zapcore.WarnLevel)
			all := fleet(t, 1, concurrency.SessionOptions{Logger: zap.New(core)}, schedlock.Options{})
			each, err := gocronlock.NewCron[gocron.Lock](all[0].Locker, gocron.NewDefaultCron(true))
			require.NoError(t, err)
			ran := make(chan struct{}, 100)
			opts := []gocron.JobOption{gocron.WithName("job"), gocron.WithCronImplementation(each)}
			if !alone {
				opts = append(opts, gocron.WithDistributedJobLocker(each))
			}
			sched := scheduler(t)
			job, err := sched.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() { ran <- struct{}{} }), opts...)
			require.NoError(t, err)
			sched.Start()
			for range 3 {
				_, err = job.NextRuns(50)
				require.NoError(t, err)
				select {
				case <-ran:
				case <-time.After(soon):
					require.FailNow(t, "it does not run")
				}
			}
			if !alone {
				require.Zero(t, lines.Len(), lines.All())
				return
			}
			require.Equal(t, 1, lines.Len())
			require.Contains(t, lines.All()[0].Message, "WithDistributedJobLocker")
		})
	}
}

// etcd is away from a fire time until after the next one. That one still starts, late:
// Lock returns before it, so gocron calls for it.
func TestGocronAfterAnOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for fire times of gocron's: 15 s")
	}
	t.Parallel()
	const period = 5 * time.Second
	in := fleet(t, 1, concurrency.SessionOptions{TTL: time.Minute}, schedlock.Options{})[0]
	each, err := gocronlock.NewCron[gocron.Lock](in.Locker, gocron.NewDefaultCron(true))
	require.NoError(t, err)
	s := newStarts()
	sched := scheduler(t)
	_, err = sched.NewJob(gocron.CronJob("*/5 * * * * *", true), gocron.NewTask(func() {
		if r, ok := each.Running("job"); ok {
			s.add(r.Tick())
		}
	}), gocron.WithName("job"), gocron.WithCronImplementation(each), gocron.WithDistributedJobLocker(each))
	require.NoError(t, err)
	away := in.client.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.FailWith})
	sched.Start()
	require.NoError(t, away.WaitHit(ctxT(t)))
	next := time.Now().Truncate(period).Add(period)
	time.Sleep(time.Until(next.Add(period / 5)))
	away.Remove()
	s.wait(t, 1)
	require.Contains(t, s.counts(), next.UTC())
}

// gocron refuses a job whose crontab a Job would refuse.
func TestGocronCronRefused(t *testing.T) {
	t.Parallel()
	lk := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})[0]
	s := scheduler(t)
	for tab, says := range map[string]string{"* * * * * *": "AtLeast(1s) is as long", "0 0 0 31 4 *": "invalid crontab"} {
		locker, err := gocronlock.NewCron[gocron.Lock](lk.Locker, gocron.NewDefaultCron(true), schedlock.AtLeast(time.Second))
		require.NoError(t, err)
		_, err = s.NewJob(gocron.CronJob(tab, true), gocron.NewTask(func() {}), gocron.WithName("job"),
			gocron.WithCronImplementation(locker), gocron.WithDistributedJobLocker(locker))
		require.ErrorContains(t, err, says)
	}
}
