package schedlock

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Job is a job with its schedule, for cron libraries: it is both the job and the schedule that
// robfig/cron takes. Each run is for the latest fire time that has come:
//
//	job, err := lk.Job("invoices", schedule, send)
//	if err != nil {
//		return err
//	}
//	c.Schedule(job, job)
//
// A Job is safe for concurrent use.
type Job struct {
	locker   *Locker
	name     string
	fn       Func
	settings settings
	times    timetable
	starts   *starts
	begin    sync.Once
	warned   sync.Once
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
		j.starts.register(func() {
			j.locker.plans.change(func() {
				j.register()
				j.locker.plans.add(j.name, &j.times)
			})
		})
		if j.settings.misfire == Once || j.settings.repeats() {
			j.locker.sess.Callback(j.catchUp)
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
// for a run do not reach it, and if its settings are in force, they are not any more. Of several Jobs of the name the latest that
// stays is planned and gets the requests. If no other live process has it, its
// plan is removed, so that it has no next fire time and EtcdkitJobNotStarted waits for none; but a period stays in force if
// another live process has run it without a Job (Do, wrappers). EtcdkitJobGone rings if records stay, as they do
// until Forget. Active runs continue, without further attempts. No other run of this Job starts after Remove has returned nil:
// its calls return ErrInvalid, also those that wait for a tick, and Remove waits for the claims that are on their way to etcd, or in
// a method of the schedule, and for plans that this process is writing. To use the job again, make a new Job. After ErrClosed, ctx's
// error or an error of etcd's the plan may be removed or not, and such a claim may start a run; it can be called again. ctx's error
// says what Remove has waited for, and is joined with ErrUnavailable if etcd does not answer.
func (j *Job) Remove(ctx context.Context) error {
	l := j.locker
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	j.starts.end()
	of := l.job(j.name)
	if l.plans.giveUp(of, j) {
		l.sess.Background(func() { readRequested(l, of) })
	}
	return l.about("remove", j.name, l.plans.remove(ctx, j.name, &j.times, j.starts))
}

// Run runs the latest tick that has come, as Locker.Do does. Cron libraries call it. The result
// goes to Options.Done and to the session's Logger: a failed or lost run, and a tick that could not
// be claimed, are logged as warnings. A call by hand does the same: it does not repeat a tick that
// was run. Before the first tick there is none to run: Late. Up to 10 s before a fire time (a
// twentieth of an interval below 200 s) the call is for that one and waits for it, since a timer may
// be early after the wall clock was set back. To run the job now, see Trigger.
//
// Run is the only call for its tick in this process. So if etcd is out of space or refuses the client, it repeats the request, and
// returns that error when it is too late for the tick.
func (j *Job) Run() { j.locker.reports.result(j.RunContext(context.Background())) }

// RunContext is Run with a ctx, and returns the result. It returns the errors of Locker.Do, ErrLost
// and ErrTooLong among them.
func (j *Job) RunContext(ctx context.Context) (Result, error) {
	tick, ok := j.locker.due(ctx, &j.times)
	if !ok {
		return noTick(j.locker, j.name)
	}
	return j.run(ctx, tick, false)
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
	defer j.locker.reports.callDone(&res, &err)
	return j.locker.do(ctx, j.name, j.fn, request{settings: j.settings, starts: j.starts, within: j.settings.lateBy, times: &j.times, again: j.times.after(j.locker.opts.Now()), next: j.times.after(j.locker.opts.Now())})
}

// run runs one tick, unless a later one has come. own reports whether this process has made the call itself.
func (j *Job) run(ctx context.Context, tick time.Time, own bool) (Result, error) {
	j.locker.job(j.name).callers.ofJob(j.locker.log, j.name, j, tick)
	return j.locker.scheduled(ctx, j.name, j.fn, request{settings: j.settings, starts: j.starts, within: j.settings.lateBy, own: own}, &j.times, tick)
}
