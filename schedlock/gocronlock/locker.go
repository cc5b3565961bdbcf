package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// Locker is a Locker of gocron. It is safe for concurrent use.
type Locker[L interface{ Unlock(context.Context) error }] struct {
	adapter *schedlock.Adapter
	asked   func() error // called at each call of Lock, and may refuse it; or nil

	mu     sync.Mutex
	runs   map[string]*schedlock.Run
	failed map[string]error // of runs, by Fail
}

// New returns a locker for gocron's jobs. The names of the jobs are the names of its runs, and L is
// gocron's type of a lock:
//
//	locker, err := gocronlock.New[gocron.Lock](lk, 5*time.Minute)
//	if err != nil {
//		return err
//	}
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	if err != nil {
//		return err
//	}
//	_, err = s.NewJob(gocron.DurationJob(5*time.Minute), gocron.NewTask(sweep), gocron.WithName("sweep"))
//
// Give each job a name of its own. Without WithName a job has the name of its function, such as
// example.com/shop.sweep, and two jobs of one function share it, so that only one of them starts in
// each period. The name of a function literal, such as main.main.func1, is numbered: another build
// may give it to another job, and the job then starts once more under its new name.
//
// gocron does not pass the fire time to a locker. So every, the interval of the jobs, makes the
// ticks, as the option schedlock.Every does. Jobs of another interval need another locker, which
// gocron.WithDistributedJobLocker gives to a job. Of two calls in one period at most one starts, so
// a daily job at two times cannot have a period of a day. A second call in one period is logged as
// a warning, once for each name. With periods of whole days a job at a time of day runs each day,
// also when the clocks go forward and two of its calls come within one day in UTC: so a second call of a process that comes 20 to
// 80 minutes less than the period after its first one starts as that of the next day. For other jobs at
// times of day see NewCron. The locker knows no schedule: before its first run a job has no next fire time, and an alert
// on the age of its latest success replaces one that it does not start (docs/observability.md, Jobs). After RemoveJob of gocron
// call Remove of the schedlock.Locker: otherwise the settings of the job stay in force until the session ends.
//
// Without schedlock.LateBy, a tick starts within its period or not at all, and Lock returns one second, or a
// tenth of a period below ten seconds, before gocron's next call: gocron skips a fire time that has
// passed when Lock returns. Set schedlock.AtMost above the longest time that the task takes, since gocron
// cannot end a task: a task that continues after AtMost, one hour by default, may overlap with its
// next run, and a warning is logged.
//
// gocron acquires the lock before it decides whether the task runs. So an error of
// BeforeJobRunsSkipIfBeforeFuncErrors uses up the tick in the whole fleet: no other process runs
// the task for it. With schedlock.Retries, a call on standby occupies one of the places of
// WithLimitConcurrentJobs, or delays the next run of a job in singleton mode: see Retry.
//
// New returns ErrInvalid if the period or an option is out of range, if options
// contradict each other, and if L has methods other than Unlock.
func New[L interface{ Unlock(context.Context) error }](l *schedlock.Locker, every time.Duration, opts ...schedlock.Option) (*Locker[L], error) {
	g, err := newLocker[L](l, schedlock.Periods(every), opts)
	if err != nil {
		return nil, fmt.Errorf("new locker for gocron: %w", err)
	}
	return g, nil
}

func newLocker[L interface{ Unlock(context.Context) error }](l *schedlock.Locker, schedule schedlock.Schedule, opts []schedlock.Option) (*Locker[L], error) {
	a, err := schedlock.NewAdapter(l, schedule, opts...)
	if err != nil {
		return nil, errors.Unwrap(err) // the caller says what was attempted
	}
	if _, ok := any((*lock)(nil)).(L); !ok {
		return nil, invalid("the library's lock has methods other than Unlock")
	}
	return &Locker[L]{adapter: a, runs: map[string]*schedlock.Run{}, failed: map[string]error{}}, nil
}

// Lock is called by gocron when a job's timer fires. It starts a run of the job for the tick that
// has come; the run lasts until Unlock. If this call does not start the tick, Lock returns a
// *SkippedError (ErrSkipped), otherwise the errors of schedlock.Locker.Do. ctx bounds the start, not the run.
func (g *Locker[L]) Lock(ctx context.Context, key string) (L, error) {
	lock, err := g.lock(ctx, key)
	if err != nil {
		var none L
		return none, err
	}
	return any(lock).(L), nil
}

func (g *Locker[L]) lock(ctx context.Context, key string) (*lock, error) {
	if g.asked != nil {
		if err := g.asked(); err != nil {
			err = fmt.Errorf("lock job %q for gocron: %w", key, err)
			g.adapter.Refuse(key, err)
			return nil, err
		}
	}
	started, res, err := g.adapter.Start(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case started == nil:
		return nil, &SkippedError{Result: res}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[key] = started.Run()
	delete(g.failed, key)
	return &lock{started, func() error { return g.unlocked(key, started.Run()) }}, nil
}

// unlocked takes a run from the active ones, and returns the error that was passed to Fail.
func (g *Locker[L]) unlocked(key string, r *schedlock.Run) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs[key] != r { // another one has begun, after AtMost
		return nil
	}
	err := g.failed[key]
	delete(g.runs, key)
	delete(g.failed, key)
	return err
}

// Running returns the active run of a job under this locker: for tasks that need its Context, which
// ends when the run is lost, its Token or its Guard.
func (g *Locker[L]) Running(key string) (*schedlock.Run, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.runs[key]
	return r, ok
}

// Fail has the active run of a job under this locker recorded as failed, with err, when gocron
// releases the lock. Of several errors the first counts. Fail returns false if the job has no
// active run, or err is nil. It is for gocron's listeners, which are called before the release:
//
//	gocron.AfterJobRunsWithError(func(_ uuid.UUID, name string, err error) { locker.Fail(name, err) })
//
// likewise for AfterJobRunsWithPanic, and for a function of BeforeJobRunsSkipIfBeforeFuncErrors
// that is about to return an error.
func (g *Locker[L]) Fail(key string, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs[key] == nil || err == nil {
		return false
	}
	if g.failed[key] == nil {
		g.failed[key] = err
	}
	return true
}

// Retry has a tick whose run was lost started again, as schedlock.Retries allows, by a call of again: the
// RunNow of gocron's job of that name.
//
//	job, err := s.NewJob(…, gocron.WithName("sweep"))
//	if err != nil {
//		return err
//	}
//	locker.Retry("sweep", job.RunNow)
//
// Without Retry the call of Lock itself is on standby. gocron counts it as a running task: it
// occupies one of the places of WithLimitConcurrentJobs, so that other jobs wait for it, and delays
// the next run of a job in singleton mode. With Retry such a call returns at once, as Claimed, and
// the Locker is on standby in the background. Call Retry before the scheduler starts. It has no
// effect without Retries.
func (g *Locker[L]) Retry(key string, again func() error) { g.adapter.Retry(key, again) }

// lock is a run, as a lock of gocron.
type lock struct {
	started  *schedlock.Started
	unlocked func() error
}

// Unlock ends the run. It waits until the end is recorded, the session's ReleaseTimeout has passed
// or ctx has ended; afterwards recording continues in the background. It returns a *schedlock.LostError,
// ErrTooLong, the error that was passed to Fail, or ctx's error.
func (k *lock) Unlock(ctx context.Context) error { return k.started.End(ctx, k.unlocked()) }
