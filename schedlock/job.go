package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Job is a job with its schedule, for cron libraries: it is both the job and the schedule that
// robfig/cron takes. Each run is for the latest fire time that has come:
//
//	job, err := lk.Job("invoices", schedule, send)
//	c.Schedule(job, job)
//
// A Job is safe for concurrent use.
type Job struct {
	locker   *Locker
	name     string
	fn       Func
	settings settings
	times    timetable
	begin    sync.Once
	warned   sync.Once
}

// Job returns a job for a cron library. It sends nothing to etcd.
//
// A schedule that counts from the time at which it is asked, such as @every, has no fire times on
// which processes could agree, and is refused: pass Periods in its place. (robfig's @every 1s fires
// at whole seconds, and is accepted.) So is one without a fire time, such as the 31st of April.
// Without LateBy, a tick starts before the next fire time or not at all.
//
// Two Jobs of one name are one job: at most one of them starts for each tick. If one process uses
// both, a warning is logged once.
//
// Job returns ErrInvalid if the name, the schedule or an option is out of range, if the schedule or
// the function is nil, and if options contradict each other, the schedule, or the settings with
// which this process uses the job.
func (l *Locker) Job(name string, schedule Schedule, fn Func, opts ...JobOption) (*Job, error) {
	periods, _ := schedule.(Periods)
	s, err := newSettings(time.Duration(periods), opts)
	j := &Job{locker: l, name: name, fn: fn, settings: s, times: timetable{schedule: schedule}}
	j.times.stuck = warnOfStuck(l.log, name)
	err = cmp.Or(checkName(name), err)
	switch {
	case err != nil:
	case schedule == nil:
		err = invalid("the schedule is nil")
	case fn == nil:
		err = invalid("the function is nil")
	case schedule == periods:
		err = cmp.Or(checkPeriod(fmt.Sprintf("the period %v", s.every), s.every), s.checkFailed(s.every))
	default:
		err = j.times.check(s, l.opts.Now())
	}
	if err == nil {
		err = l.job(name).use(s.fingerprint())
	}
	if err != nil {
		return nil, fmt.Errorf("new job %q: %w", name, err)
	}
	return j, nil
}

// Next returns the schedule's next fire time after t, in the location of t. The answer makes no
// tick: Run takes the latest fire time that has come, whatever Next was asked. So other callers
// than the cron library may call Next, for any t, after the job was passed to the library.
//
// The library must make the first call, because two things depend on it. First, a schedule without
// a time zone of its own, such as that of cron.ParseStandard, is read in the location of the first
// call, for all callers; if a later call in another location would get other fire times, that is
// logged once. A zone in the schedule, such as "CRON_TZ=Europe/Berlin 0 9 * * *", avoids this, also
// where processes have different local zones. Second, the first call starts the search, in the
// background, for ticks that were missed (see OnMisfire) and for a lost run that may be repeated
// (see Retries). A program that only displays fire times asks the schedule itself.
func (j *Job) Next(t time.Time) time.Time {
	next, zone := j.times.next(t)
	if zone != nil {
		j.warned.Do(func() {
			j.locker.log.Warn("a job was asked for its fire times in two time zones, and they differ; the first zone is used. Give the schedule a zone, such as CRON_TZ=Europe/Berlin",
				zap.String("job", j.name), zap.Stringer("first", zone), zap.Stringer("other", t.Location()))
		})
	}
	j.begin.Do(func() {
		j.warnOfZone(t)
		j.locker.register(j)
		j.locker.plans.add(j.name, &j.times)
		if j.settings.misfire == Once || j.settings.repeats() {
			j.locker.sess.Background(j.catchUp)
		}
	})
	return next
}

// warnOfZone checks AtLeast again if the schedule is asked in another zone than Job has supposed. It is
// too late to refuse the job.
func (j *Job) warnOfZone(first time.Time) {
	if j.settings.atLeast == 0 || first.Location() == j.locker.opts.Now().Location() {
		return
	}
	if err := j.times.check(j.settings, first); err != nil {
		j.locker.log.Warn("in the time zone of the cron library the options of a job skip ticks", zap.String("job", j.name), zap.Stringer("zone", first.Location()), zap.Error(err))
	}
}

// Remove says that this process does not have the job any more: call it after the cron library has removed it. Requests
// for a run do not reach it, and if no other live process has it, its plan is removed, so that it has no next fire time
// and EtcdkitJobNotStarted waits for none. EtcdkitJobGone rings for a day if records stay, as they do until Forget. Active runs
// continue. To use the job again, make a new
// Job. After ErrClosed, ctx's error or an error of etcd's the plan may be removed or not; it can be called again.
func (j *Job) Remove(ctx context.Context) error {
	l := j.locker
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	of := l.job(j.name)
	of.mu.Lock()
	if of.asked == j {
		of.asked = nil
	}
	of.mu.Unlock()
	return l.about("remove", j.name, l.plans.remove(ctx, j.name, &j.times))
}

// Run runs the latest tick that has come, as Locker.Do does. Cron libraries call it. The result
// goes to Options.Done and to the session's Logger: a failed or lost run, and a tick that could not
// be claimed, are logged as warnings. A call by hand does the same: it does not repeat a tick that
// was run. Before the first tick there is none to run: Late. Up to 10 s before a fire time (a
// twentieth of an interval below 200 s) the call is for that one and waits for it, since a timer may
// be early after the wall clock was set back. To run the job now, see Trigger.
func (j *Job) Run() { j.locker.report(j.RunContext(context.Background())) }

// RunContext is Run with a ctx, and returns the result. It returns the errors of Locker.Do, ErrLost
// and ErrTooLong among them.
func (j *Job) RunContext(ctx context.Context) (Result, error) {
	tick, ok := j.locker.due(ctx, &j.times)
	if !ok {
		return noTick(j.locker, j.name)
	}
	return j.run(ctx, tick)
}

// Trigger runs the job now, for a tick of its own, whatever the schedule says. Otherwise it is as
// RunContext: it does not overlap with another run, and returns ErrLost, ErrTooLong and the other
// errors of Locker.Do.
//
// Near a fire time, the call that claims its tick first decides. If Trigger claims after the fire
// time and before the calls for it, it replaces that tick: the calls report Late, and the job runs
// once. If the fire time was claimed first, Trigger reports StillRunning while that run is active, and runs the
// job once more after it. A fire time that comes during a triggered run is skipped as StillRunning.
// With Retries a lost run is repeated as that of a tick: until LateBy after the call of Trigger, by
// default before the next fire time.
func (j *Job) Trigger(ctx context.Context) (res Result, err error) {
	defer j.locker.callDone(&res, &err)
	return j.locker.do(ctx, j.name, j.fn, request{settings: j.settings, within: j.settings.lateBy, times: &j.times, again: j.times.after(j.locker.opts.Now()), next: j.times.after(j.locker.opts.Now())})
}

// run runs one tick, unless a later one has come.
func (j *Job) run(ctx context.Context, tick time.Time) (Result, error) {
	j.locker.job(j.name).callers.ofJob(j.locker.log, j.name, j, tick)
	return j.locker.scheduled(ctx, j.name, j.fn, request{settings: j.settings, within: j.settings.lateBy}, &j.times, tick)
}

// due returns the tick for which a library calls now, and false if none has come. If the call is a little
// early, it waits for the tick.
func (l *Locker) due(ctx context.Context, times *timetable) (time.Time, bool) {
	times.setBack(l.horizon())
	tick, in, ok := times.due(l.opts.Now())
	if in > 0 {
		ctx, cancel := l.untilClose(ctx)
		defer cancel()
		select {
		case <-time.After(in):
		case <-ctx.Done(): // the claim returns the reason
		}
	}
	return tick, ok
}

// noTick is the result of a call for a job of which no tick has come.
func noTick(l *Locker, name string) (res Result, err error) {
	defer l.callDone(&res, &err)
	return Result{Job: name, Outcome: Late}, nil
}

// scheduled runs one tick of a timetable.
func (l *Locker) scheduled(ctx context.Context, name string, fn Func, r request, times *timetable, tick time.Time) (res Result, err error) {
	defer l.callDone(&res, &err)
	times.setBack(l.horizon())
	passed, ok := times.advance(tick)
	if !ok {
		return Result{Job: name, Tick: tick.UTC(), Outcome: Late}, nil
	}
	r.tick, r.passed, r.fires, r.times = tick, passed, times.print(), times
	r.next = times.after(tick)
	if r.within == 0 && !r.next.IsZero() {
		r.within = r.next.Sub(tick)
	}
	return l.do(ctx, name, fn, r)
}
