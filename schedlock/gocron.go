package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// GocronLocker is a Locker of gocron (v2). Another locker for gocron locks the name of the job
// until its task ends, so that each process whose timer fires after that runs the task again. This
// one creates the tick's record. It is safe for concurrent use.
//
// gocron does not pass on what happens to a run. A task is not notified that its run was lost: use
// Running to get the run. gocron does not report that a task failed or panicked, nor that it was
// not called because BeforeJobRunsSkipIfBeforeFuncErrors returned an error: History shows such a
// run as done unless a listener calls Fail.
type GocronLocker[L interface{ Unlock(context.Context) error }] struct {
	locker   *Locker
	settings settings
	ticks    *gocronTicks // or nil if the ticks are periods

	mu     sync.Mutex
	runs   map[string]*Run
	failed map[string]error // of runs, by Fail

	again   map[string]func() error // by Retry
	watched map[string]bool         // jobs for which the Locker is on standby
	lost    map[string]time.Time    // ticks for which again was called
}

// NewGocronLocker returns a locker for gocron's jobs. The names of the jobs are the names of its
// runs, and L is gocron's type of a lock:
//
//	locker, err := schedlock.NewGocronLocker[gocron.Lock](lk, 5*time.Minute)
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	s.NewJob(gocron.DurationJob(5*time.Minute), gocron.NewTask(sweep), gocron.WithName("sweep"))
//
// Give each job a name of its own. Without WithName a job has the name of its function, such as
// example.com/shop.sweep, and two jobs of one function share it, so that only one of them starts in
// each period. The name of a function literal, such as main.main.func1, is numbered: another build
// may give it to another job, and the job then starts once more under its new name.
//
// gocron does not pass the fire time to a locker. So every, the interval of the jobs, makes the
// ticks, as the option Every does. Jobs of another interval need another locker, which
// gocron.WithDistributedJobLocker gives to a job. Of two calls in one period at most one starts, so
// a daily job at two times cannot have a period of a day. A second call in one period is logged as
// a warning, once for each name. With periods of whole days a job at a time of day runs each day,
// also when the clocks go forward and two of its calls come within one day in UTC. For other jobs at
// times of day see NewGocronCron. The locker knows no schedule: before its first run a job has no next fire time, and an alert
// on the age of its latest success replaces one that it does not start (docs/observability.md, Jobs).
//
// Without LateBy, a tick starts within its period or not at all, and Lock returns one second, or a
// tenth of a period below ten seconds, before gocron's next call: gocron skips a fire time that has
// passed when Lock returns. Set AtMost above the longest time that the task takes, since gocron
// cannot end a task: a task that continues after AtMost, one hour by default, may overlap with its
// next run, and a warning is logged.
//
// gocron acquires the lock before it decides whether the task runs. So an error of
// BeforeJobRunsSkipIfBeforeFuncErrors uses up the tick in the whole fleet: no other process runs
// the task for it. With Retries, a call on standby occupies one of the places of
// WithLimitConcurrentJobs, or delays the next run of a job in singleton mode: see Retry.
//
// NewGocronLocker returns ErrInvalid if the period or an option is out of range, if options
// contradict each other, and if L has methods other than Unlock.
func NewGocronLocker[L interface{ Unlock(context.Context) error }](l *Locker, every time.Duration, opts ...Option) (*GocronLocker[L], error) {
	s, err := newPeriodic(every, opts)
	if err != nil {
		return nil, fmt.Errorf("new gocron locker: %w", err)
	}
	return newGocronLocker[L](l, s)
}

func newGocronLocker[L interface{ Unlock(context.Context) error }](l *Locker, s settings) (*GocronLocker[L], error) {
	if _, ok := any((*gocronLock)(nil)).(L); !ok {
		return nil, fmt.Errorf("new gocron locker: %w", invalid("the library's lock has methods other than Unlock"))
	}
	return &GocronLocker[L]{locker: l, settings: s, runs: map[string]*Run{}, failed: map[string]error{},
		again: map[string]func() error{}, watched: map[string]bool{}, lost: map[string]time.Time{}}, nil
}

// SkippedError reports that a tick was not started by this call, and why: see Result.Outcome. It is
// an error because gocron skips a task only if Lock fails. errors.Is matches it with ErrSkipped.
type SkippedError struct{ Result Result }

// Error returns the job, the tick and the reason.
func (e *SkippedError) Error() string {
	s := fmt.Sprintf("job %q, tick %s: %v", e.Result.Job, stamp(e.Result.Tick), e.Result.Outcome)
	if e.Result.Owner != "" {
		s += ", by " + e.Result.Owner
	}
	if p := e.Result.Paused; p != nil {
		if p.By != "" {
			s += " by " + p.By
		}
		if p.Reason != "" {
			s += ": " + p.Reason
		}
	}
	return s
}

// Is reports whether target is ErrSkipped.
func (e *SkippedError) Is(target error) bool { return target == ErrSkipped }

// Lock is called by gocron when a job's timer fires. It starts a run of the job for the tick that
// has come; the run lasts until Unlock. If this call does not start the tick, Lock returns a
// *SkippedError (ErrSkipped), otherwise the errors of Locker.Do. ctx bounds the start, not the run.
func (g *GocronLocker[L]) Lock(ctx context.Context, key string) (L, error) {
	lock, err := g.lock(ctx, key)
	if err != nil {
		var none L
		return none, err
	}
	return any(lock).(L), nil
}

// Running returns the active run of a job under this locker: for tasks that need its Context, which
// ends when the run is lost, its Token or its Guard.
func (g *GocronLocker[L]) Running(key string) (*Run, bool) {
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
func (g *GocronLocker[L]) Fail(key string, err error) bool {
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

func (g *GocronLocker[L]) lock(ctx context.Context, key string) (*gocronLock, error) {
	err := checkName(key)
	if err == nil && g.ticks != nil {
		err = g.ticks.belongsTo(key)
	}
	if err != nil {
		err = fmt.Errorf("lock job %q for gocron: %w", key, err)
		g.locker.callDone(&Result{Job: key}, &err)
		g.locker.report(Result{Job: key}, err)
		return nil, err
	}
	// gocron cancels its ctx before the task has ended, so the run does not depend on it.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(endedBy{ctx.Err()}) })
	lock := &gocronLock{unlocked: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan struct{})
	fn := func(_ context.Context, r *Run) error {
		if !detach() {
			return ctx.Err() // the call has ended
		}
		g.mu.Lock()
		g.runs[key] = r
		delete(g.failed, key)
		g.mu.Unlock()
		close(started)
		<-lock.unlocked // the task continues until then, even if the run is lost
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.runs[key] != r {
			return nil
		}
		err := g.failed[key]
		delete(g.runs, key)
		delete(g.failed, key)
		return err
	}
	go func() {
		defer close(lock.ended)
		defer cancel(nil)
		lock.res, lock.err = g.run(work, key, fn)
		g.locker.report(lock.res, lock.err)
	}()
	select {
	case <-started:
		return lock, nil
	case <-lock.ended:
		detach()
	}
	if lock.err == nil {
		lock.err = &SkippedError{Result: lock.res}
	}
	return nil, lock.err
}

// run runs the tick for which gocron calls now. gocron plans its next call when Lock returns, and
// skips a fire time that has passed then. So without LateBy, Lock returns before that.
func (g *GocronLocker[L]) run(ctx context.Context, key string, fn Func) (Result, error) {
	l, r := g.locker, g.newRequest(key)
	if g.ticks == nil {
		r.periodic = true
		if again := !r.tick.IsZero(); again {
			r.within = cmp.Or(r.within, r.every)
			return l.call(ctx, key, fn, r, g)
		}
		now := l.opts.Now()
		r.within = cmp.Or(r.within, min(r.every, now.Sub(r.tickAt(now))+inTime(r.every)))
		return l.call(ctx, key, fn, r, g)
	}
	if r.called = g.ticks.unnamed(); !r.tick.IsZero() {
		return l.scheduled(ctx, key, fn, r, &g.ticks.times, r.tick)
	}
	tick, ok := l.due(ctx, &g.ticks.times)
	if !ok {
		return noTick(l, key)
	}
	if next := g.ticks.times.after(tick); r.within == 0 && !next.IsZero() {
		r.within = inTime(next.Sub(tick))
	}
	return l.scheduled(ctx, key, fn, r, &g.ticks.times, tick)
}

// inTime returns the time within which Lock returns, if gocron's next call comes a period after
// this one.
func inTime(period time.Duration) time.Duration { return period - min(period/10, time.Second) }

// gocronLock is a run, as a lock of gocron.
type gocronLock struct {
	once     sync.Once
	unlocked chan struct{}
	ended    chan struct{}
	res      Result // as of ended
	err      error
}

// Unlock ends the run. It waits until the end is recorded, the session's ReleaseTimeout has passed
// or ctx has ended; afterwards recording continues in the background. It returns a *LostError,
// ErrTooLong, the error that was passed to Fail, or ctx's error.
func (k *gocronLock) Unlock(ctx context.Context) error {
	k.once.Do(func() { close(k.unlocked) })
	select {
	case <-k.ended:
		return k.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
