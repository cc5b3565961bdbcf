package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Adapter starts ticks for a scheduler that locks a job, runs its task and unlocks the job, as gocron
// does: package gocronlock is built on it. Such a scheduler passes the name of the job to the lock, and
// neither the fire time nor the task. Where a function can be passed, use Locker.Job, Wrap or Locker.Do.
//
// An Adapter whose schedule is Periods is for any number of jobs: the period of a call is its tick. With
// another schedule it is for one job: the tick of a call is the latest fire time that has come. It is
// safe for concurrent use.
type Adapter struct {
	locker   *Locker
	settings settings
	times    *timetable // or nil if the ticks are periods

	mu      sync.Mutex
	again   map[string]func() error // by Retry
	watched map[string]bool         // jobs for which the Locker is on standby
	lost    map[string]lostTick     // for which again was called
	plan    adapterPlan
}

// NewAdapter returns an Adapter. The schedule of one that is not of Periods is asked for fire times when
// SetCrontab has been called, and not before.
//
// NewAdapter returns ErrInvalid if the Locker or the schedule is nil, the period or an option is out of range, or
// options contradict each other. RetryFailed is refused: the scheduler alone can run the task again.
func NewAdapter(l *Locker, schedule Schedule, opts ...Option) (*Adapter, error) {
	a := &Adapter{locker: l, again: map[string]func() error{}, watched: map[string]bool{}, lost: map[string]lostTick{}}
	var err error
	switch every, periodic := schedule.(Periods); {
	case l == nil:
		err = invalid("the Locker is nil")
	case checkSchedule(schedule) != nil:
		err = checkSchedule(schedule)
	case periodic:
		a.settings, err = newPeriodic(time.Duration(every), opts)
	default:
		a.times = &timetable{schedule: schedule, stuck: warnOfStuck(l.log, "of an Adapter")}
		a.settings, err = newSettings(0, opts)
		err = cmp.Or(err, a.settings.onlyLost())
	}
	if err != nil {
		return nil, fmt.Errorf("new adapter: %w", err)
	}
	return a, nil
}

// Start claims the tick for which the scheduler calls now, and returns when its run has begun. The run
// lasts until End. If this call does not start the tick, the first result is nil, and the Result has the
// reason, as that of Locker.Do. ctx bounds the start, not the run. Results and errors also go to
// Options.Done and the session's Logger, as those of Job.Run.
//
// A scheduler may leave out a fire time that has passed when its call returns. So without LateBy a tick
// starts within its period, or before the next fire time, or not at all, and Start returns one second, or
// a tenth of an interval below ten seconds, before that.
//
// Start returns ErrInvalid if the name is out of range, or if the Adapter is for one job and has no
// crontab or belongs to another job, and otherwise the errors of Locker.Do. A request that etcd refuses is repeated as by Job.Run.
func (a *Adapter) Start(ctx context.Context, name string) (*Started, Result, error) {
	if err := a.accept(name); err != nil {
		err = fmt.Errorf("start job %q: %w", name, err)
		a.Refuse(name, err)
		return nil, Result{Job: name}, err
	}
	// A scheduler may end its ctx before the task has ended, so the run does not depend on it.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(endedBy{ctx.Err()}) })
	s := &Started{end: make(chan struct{}), ended: make(chan struct{})}
	begun := make(chan struct{})
	fn := func(_ context.Context, r *Run) error {
		if !detach() {
			return ctx.Err() // the call has ended
		}
		s.run = r
		close(begun)
		<-s.end // the task continues until then, even if the run is lost
		return s.failed
	}
	go func() {
		defer close(s.ended)
		defer cancel(nil)
		s.res, s.err = a.call(work, name, fn)
		a.locker.reports.result(s.res, s.err)
	}()
	select {
	case <-begun:
		return s, Result{}, nil
	case <-s.ended:
		detach()
	}
	return nil, s.res, s.err
}

// call runs fn for the tick for which the scheduler calls now.
func (a *Adapter) call(ctx context.Context, name string, fn Func) (Result, error) {
	l, r := a.locker, a.request(name)
	if a.times == nil {
		if again := !r.tick.IsZero(); again {
			r.periodic = r.tick.Equal(Periods(r.every).at(r.tick)) // and not halfway between two days
			r.within = cmp.Or(r.within, r.every)
			return l.call(ctx, name, fn, r, a)
		}
		r.periodic = true
		now := l.opts.Now()
		r.within = cmp.Or(r.within, min(r.every, now.Sub(r.tickAt(now))+inTime(r.every)))
		return l.call(ctx, name, fn, r, a)
	}
	if r.called = !a.isPlanned(); !r.tick.IsZero() {
		return l.scheduled(ctx, name, fn, r, a.times, r.tick)
	}
	tick, ok := l.due(ctx, a.times)
	if !ok {
		return noTick(l, name)
	}
	if next := a.times.after(tick); r.within == 0 && !next.IsZero() {
		r.within = inTime(next.Sub(tick))
	}
	return l.scheduled(ctx, name, fn, r, a.times, tick)
}

// inTime returns the time within which Start returns, if the scheduler's next call comes a period after
// this one.
func inTime(period time.Duration) time.Duration { return period - min(period/10, time.Second) }

// Refuse reports a call that the adapter itself refuses with err, before Start: to Options.Done and the
// session's Logger, as Start does with its own errors.
func (a *Adapter) Refuse(name string, err error) {
	a.locker.reports.callDone(&Result{Job: name}, &err)
	a.locker.reports.result(Result{Job: name}, err)
}

// Now returns the time by the clock that decides which ticks have come, Options.Now.
func (a *Adapter) Now() time.Time { return a.locker.opts.Now() }

// Logger returns the session's Logger.
func (a *Adapter) Logger() *zap.Logger { return a.locker.log }

// Started is a run that Adapter.Start has begun. It is safe for concurrent use.
type Started struct {
	run    *Run
	once   sync.Once
	end    chan struct{}
	failed error         // as of end
	ended  chan struct{} // when the end is recorded
	res    Result        // as of ended
	err    error
}

// Run returns the run, for its Context, which ends when the run is lost, its Token and its Guard.
func (s *Started) Run() *Run { return s.run }

// End ends the run, as failed if failed is not nil. It waits until the end is recorded, the session's
// ReleaseTimeout has passed or ctx has ended; afterwards recording continues in the background. It
// returns failed, joined with a *LostError (ErrLost) or ErrTooLong as the error of Locker.Do is, or ctx's
// error. Of several calls the first one ends the run, and the others return the same.
func (s *Started) End(ctx context.Context, failed error) error {
	s.once.Do(func() { s.failed = failed; close(s.end) })
	select {
	case <-s.ended:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
