package schedlock

import (
	"context"
	"errors"
	"time"
)

// Option says how a job is to be run. Of options that set the same thing, the last one
// counts.
type Option func(*settings)

type settings struct {
	tick     time.Time
	hasTick  bool
	every    time.Duration
	hasEvery bool
	atMost   time.Duration
	atLeast  time.Duration
	lateBy   time.Duration
	hasLate  bool
	retries  int
	misfire  Misfire

	again      time.Time // before which a further attempt starts, if LateBy does not say otherwise, or the zero time
	hasMisfire bool
	passed     <-chan struct{}                 // closed when a later tick has come, or nil
	fires      string                          // of a schedule, see timetable.print
	aside      func(*job, time.Time, settings) // stands by in place of the call, or nil
	single     bool                            // the function can be called once only
	anew       bool                            // a claim was taken back, of which word may still come
}

// Tick is the fire time for which this call is made, the same in all processes: the
// instant that the schedule has planned, not the time at which the call was made. It
// counts in whole milliseconds.
func Tick(t time.Time) Option { return func(s *settings) { s.tick, s.hasTick = t, true } }

// Every makes a tick of each period since the Unix epoch: all calls in one period are for
// the same tick, whenever in it they are made. For tickers that are started at
// different times; together with Tick it rounds that down. A call that comes up to 50 ms
// (a tenth of a shorter period) before the next period counts for that: timers may be early.
func Every(period time.Duration) Option {
	return func(s *settings) { s.every, s.hasEvery = period, true }
}

// AtMost bounds how long the function may run; the default is one hour. When it has
// passed, the run's context ends with ErrTooLong, and the job is free when the
// function has returned, or after the session's margin if it has not. It has nothing to
// do with how soon a crashed run is noticed: that is the session's TTL.
func AtMost(d time.Duration) Option { return func(s *settings) { s.atMost = d } }

// AtLeast keeps the job from starting again for d, up to ten years, after a start, also if it has ended
// long before, crashed or closed its session. A start comes a little after its tick, so d must be
// below the interval of the job, by more than starts are late, or each second tick is left out: a d
// that equals Every, or the time between the next two fire times of a Job, is refused.
func AtLeast(d time.Duration) Option { return func(s *settings) { s.atLeast = d } }

// LateBy bounds how long after its tick a run may still start, by this process's clock:
// each attempt, in this process or in another, also after a restart or a sleep of the
// machine. By default a later tick is the only bound for Do; for a Job and the adapters, and
// for further attempts by Every and by Trigger, it is the next fire time.
func LateBy(d time.Duration) Option {
	return func(s *settings) { s.lateBy, s.hasLate = d, true }
}

// Retries lets a tick be started again, up to n times, if its run was lost: if its process
// died, was cut off or stood still for longer than its session's TTL. By default it is
// not, and the tick is shown as lost. A run that ended with an error is not repeated. A run
// whose end was not recorded before its lease ended is started again by other processes,
// although its function has returned: see Result.Unconfirmed.
//
// A further attempt obeys the lateness of a first one, whichever process makes it and
// however long it was away: it starts until LateBy has passed, by default before the next
// fire time. Do with Tick but without Every does not know that time: there, without LateBy,
// only a later tick is a bound.
//
// Somebody must be there to start again: a call that finds the tick claimed does not
// return at once then, but stands by until the run has ended, or LateBy has passed. A Job
// that begins later looks once for a lost run, see Job.Next.
//
// So it is worth nothing where those who stand by leave before the loss is noticed, which
// takes the TTL and half a second: their calls say Late then. Under a Job and
// NewGocronCron they leave when the next tick comes. Under Wrap and NewGocronLocker they
// leave at the end of the period, unless LateBy says otherwise: one above what a run takes
// and the TTL helps, since ticks that come meanwhile are left out, as StillRunning.
func Retries(n int) Option { return func(s *settings) { s.retries = n } }

// Misfire says what becomes of ticks whose time has passed without a start, because
// no process was there or etcd was away. It is not about ticks that were left out while a run
// went on, AtLeast had not passed or the job was paused: these never start.
type Misfire int

// The policies for misfires.
const (
	// Skip leaves them out.
	Skip Misfire = iota
	// Once starts the latest of them, once in the whole fleet, as soon as a process begins
	// with the job, see Job.Next, however long it has been missed; LateBy, if given, bounds
	// that, too. If a lock still stands then, the process waits until it is gone. A tick that
	// came after the last start was missed if that run was lost, or ended before it came.
	Once
)

// OnMisfire is for a Job: see Misfire. The default is Skip.
func OnMisfire(m Misfire) Option { return func(s *settings) { s.misfire, s.hasMisfire = m, true } }

const (
	defaultAtMost = time.Hour
	smallest      = time.Millisecond
	mostRetries   = 1000
	mostLeast     = 3653 * 24 * time.Hour
)

func newSettings(opts []Option) (settings, error) {
	s := settings{atMost: defaultAtMost}
	for i, o := range opts {
		if o == nil {
			return s, invalid("option %d is nil", i)
		}
		o(&s)
	}
	switch {
	case s.hasTick && s.tick.IsZero():
		return s, invalid("the tick is the zero time")
	case s.hasTick && (s.tick.Year() < 1 || s.tick.Year() > 9998):
		return s, invalid("the tick is in the year %d", s.tick.Year())
	case s.hasEvery && s.every < smallest:
		return s, invalid("Every(%v) is below a millisecond", s.every)
	case s.hasEvery && s.every%smallest != 0:
		return s, invalid("Every(%v) is no whole number of milliseconds", s.every)
	case s.atMost < smallest:
		return s, invalid("AtMost(%v) is below a millisecond", s.atMost)
	case s.atLeast < 0:
		return s, invalid("AtLeast(%v) is negative", s.atLeast)
	case s.atLeast > 0 && s.atLeast < smallest:
		return s, invalid("AtLeast(%v) is below a millisecond", s.atLeast)
	case s.atLeast > mostLeast:
		return s, invalid("AtLeast(%v) is above ten years", s.atLeast)
	case s.atLeast > s.atMost:
		return s, invalid("AtLeast(%v) is above AtMost(%v)", s.atLeast, s.atMost)
	case s.hasEvery && s.spaced(s.every):
		return s, invalid("AtLeast(%v) is as long as Every(%v): it counts from the start, a little after the tick, so each second tick would be left out; set it lower", s.atLeast, s.every)
	case s.hasLate && s.lateBy < smallest:
		return s, invalid("LateBy(%v) is below a millisecond", s.lateBy)
	case s.misfire != Skip && s.misfire != Once:
		return s, invalid("OnMisfire(%d) is neither Skip nor Once", s.misfire)
	case s.retries < 0 || s.retries > mostRetries:
		return s, invalid("Retries(%d) is not between 0 and %d", s.retries, mostRetries)
	}
	return s, nil
}

// spaced reports whether AtLeast ends right about when the next tick comes.
func (s settings) spaced(interval time.Duration) bool {
	return s.atLeast > 0 && s.atLeast <= interval && s.atLeast >= interval-min(early, interval/10)
}

// timed tells whether the call is for a fire time, which others may have claimed.
func (s settings) timed() bool { return s.hasTick || s.hasEvery }

// tickAt returns the tick of a call that is made now.
func (s settings) tickAt(now time.Time) time.Time {
	t := now
	if s.hasTick {
		t = s.tick
	}
	if s.hasEvery {
		if !s.hasTick {
			t = t.Add(min(early, s.every/10))
		}
		ms := t.UnixMilli()
		period := s.every.Milliseconds()
		return time.UnixMilli(ms - ((ms%period)+period)%period).UTC()
	}
	return t.UTC().Truncate(smallest)
}

// late reports whether it is too late to start an attempt at a tick.
func (s settings) late(tick time.Time, attempt int, now time.Time) bool {
	if s.hasLate {
		return !now.Before(tick.Add(s.lateBy))
	}
	return attempt > 1 && !s.again.IsZero() && !now.Before(s.again)
}

// periods is the schedule of the ticks of Every.
type periods time.Duration

// Next implements Schedule.
func (p periods) Next(t time.Time) time.Time {
	s := settings{tick: t, hasTick: true, every: time.Duration(p), hasEvery: true}
	return s.tickAt(t).Add(s.every)
}

// errLate ends the claim of a tick whose time has passed.
var errLate = errors.New("it is too late for the tick")

// bound derives a ctx that ends, by errLate, when it is too late for a tick.
func (s settings) bound(ctx context.Context, tick, now time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := func() { cancel(endedBy{errLate}) }
	var timer *time.Timer
	if s.hasLate {
		left := tick.Add(s.lateBy).Sub(now)
		if left <= 0 {
			late()
		}
		timer = time.AfterFunc(left, late)
	}
	if s.passed != nil {
		go func() {
			select {
			case <-s.passed:
				late()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() {
		cancel(nil)
		if timer != nil {
			timer.Stop()
		}
	}
}
