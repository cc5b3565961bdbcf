package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

var (
	_ gocron.Locker = (*schedlock.GocronLocker[gocron.Lock])(nil)
	_ gocron.Locker = (*schedlock.GocronCron[gocron.Lock])(nil)
	_ gocron.Cron   = (*schedlock.GocronCron[gocron.Lock])(nil)
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
		locker, err := schedlock.NewGocronLocker[gocron.Lock](in.Locker, schedlock.Every(period))
		require.NoError(t, err)
		sched := scheduler(t, gocron.WithDistributedLocker(locker))
		_, err = sched.NewJob(gocron.DurationJob(period), gocron.NewTask(func() {
			r, ok := locker.Running("sweep")
			if !ok {
				t.Error("no run goes on")
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
		require.Equal(t, schedlock.Done, r.State)
	}
}

// Jobs at times of day: the tick is the fire time of gocron's own cron.
func TestGocronCron(t *testing.T) {
	t.Parallel()
	all := fleet(t, 4, concurrency.SessionOptions{}, schedlock.Options{})
	s := newStarts()
	for _, in := range all {
		each, err := schedlock.NewGocronCron[gocron.Lock](in.Locker, gocron.NewDefaultCron(true))
		require.NoError(t, err)
		sched := scheduler(t)
		job, err := sched.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
			r, ok := each.Running("zero")
			if !ok {
				t.Error("no run goes on")
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

// Skips tell gocron why.
func TestGocronSkips(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 1, concurrency.SessionOptions{}, schedlock.Options{})
	locker, err := schedlock.NewGocronLocker[gocron.Lock](all[0].Locker, schedlock.Every(500*time.Millisecond))
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
			var skip *schedlock.SkippedError
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

// Shutdown during a run cancels what Unlock is given, before the task has ended. The run goes
// on until the task has ended, and is recorded as done.
func TestGocronShutdown(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 2, concurrency.SessionOptions{}, schedlock.Options{})
	locker, err := schedlock.NewGocronLocker[gocron.Lock](all[0].Locker, schedlock.Every(500*time.Millisecond))
	require.NoError(t, err)
	begun, end := make(chan *schedlock.Run, 100), make(chan struct{})
	sched := scheduler(t, gocron.WithDistributedLocker(locker))
	_, err = sched.NewJob(gocron.DurationJob(500*time.Millisecond), gocron.NewTask(func() {
		r, _ := locker.Running("long")
		begun <- r
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
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, r.Check(ctx), "the task has not ended")
	close(end)
	require.NoError(t, <-down)
	require.NoError(t, all[0].sess.Close(ctx))
	h, err := all[1].History(ctx, "long")
	require.NoError(t, err)
	require.NotEmpty(t, h)
	for _, r := range h {
		require.Equal(t, schedlock.Done, r.State)
	}
}

func sweep() {}

// A job without a name has that of its function, and runs under it. A name that cannot be
// one is told to Options.Done.
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
	locker, err := schedlock.NewGocronLocker[gocron.Lock](lk, schedlock.Every(100*time.Millisecond))
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
	locker, err := schedlock.NewGocronLocker[gocron.Lock](all[0].Locker, schedlock.Every(time.Second))
	require.NoError(t, err)
	_, err = locker.Lock(ctxT(t), string(make([]byte, 10_000)))
	require.True(t, errors.Is(err, schedlock.ErrInvalid), err)
}

var _ gocron.Elector = (*schedlock.GocronElector)(nil)

// Only the leader's scheduler runs jobs, and the next leader's after it.
func TestGocronElector(t *testing.T) {
	t.Parallel()
	ctx := ctxT(t)
	all := fleet(t, 3, concurrency.SessionOptions{}, schedlock.Options{})
	ran := make(chan int, 1000)
	var electors []*schedlock.GocronElector
	for i, in := range all {
		el, err := concurrency.NewElection(in.sess, "cron", nil)
		require.NoError(t, err)
		e, err := schedlock.NewGocronElector(el)
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
