package schedlock

import "time"

// CallOption configures one call of Locker.Do: Tick, Every, and each Option. Of options that
// set the same thing, the last one counts.
type CallOption interface{ applyCall(*request) error }

// JobOption configures a Job: OnMisfire, and each Option.
type JobOption interface{ applyJob(*settings) error }

// Option configures a call of Locker.Do, a Job and the adapters alike: AtMost, AtLeast, LateBy
// and Retries.
type Option interface {
	CallOption
	JobOption
}

type (
	callOption func(*request) error
	jobOption  func(*settings) error
	option     func(*settings) error
)

func (o callOption) applyCall(r *request) error { return o(r) }
func (o jobOption) applyJob(s *settings) error  { return o(s) }
func (o option) applyCall(r *request) error     { return o(&r.settings) }
func (o option) applyJob(s *settings) error     { return o(s) }

// settings are how a job is to be run. They do not change once they are read.
type settings struct {
	every   time.Duration // of which each period has one tick; 0 if there are none
	atMost  time.Duration
	atLeast time.Duration
	lateBy  time.Duration // 0 if it is not given
	retries int
	misfire Misfire
}

// Tick is the fire time for which this call is made, the same in all processes: the
// instant that the schedule has planned, not the time at which the call was made. It
// counts in whole milliseconds.
func Tick(t time.Time) CallOption {
	return callOption(func(r *request) error {
		r.tick = t
		switch {
		case t.IsZero():
			return invalid("the tick is the zero time")
		case t.Year() < 1 || t.Year() > 9998:
			return invalid("the tick is in the year %d", t.Year())
		}
		return nil
	})
}

// Every makes a tick of each period since the Unix epoch: all calls in one period are for
// the same tick, whenever in it they are made. For tickers that are started at
// different times; together with Tick it rounds that down. A call that comes up to 50 ms
// (a tenth of a shorter period) before the next period counts for that: timers may be early.
func Every(period time.Duration) CallOption {
	return callOption(func(r *request) error {
		r.every, r.periodic = period, true
		return checkPeriod(period)
	})
}

// AtMost bounds how long the function may run; the default is one hour. When it has
// passed, the run's context ends with ErrTooLong, and the job is free when the
// function has returned, or after the session's margin if it has not. It has nothing to
// do with how soon a crashed run is noticed: that is the session's TTL.
func AtMost(d time.Duration) Option {
	return option(func(s *settings) error { s.atMost = d; return checkLength("AtMost", d) })
}

// AtLeast keeps the job from starting again for d, up to ten years, after a start, also if it has ended
// long before, crashed or closed its session. A start comes a little after its tick, so d must be
// below the interval of the job, by more than starts are late, or each second tick is left out: a d
// that equals the period, or the time between the next two fire times of a Job, is refused.
func AtLeast(d time.Duration) Option {
	return option(func(s *settings) error {
		s.atLeast = d
		switch {
		case d > mostLeast:
			return invalid("AtLeast(%v) is above ten years", d)
		case d == 0:
			return nil
		}
		return checkLength("AtLeast", d)
	})
}

// LateBy bounds how long after its tick a run may still start, by this process's clock:
// each attempt, in this process or in another, also after a restart or a sleep of the
// machine. By default a later tick is the only bound for Do; for a Job and the adapters, and
// for further attempts with Every and by Trigger, it is the next fire time.
func LateBy(d time.Duration) Option {
	return option(func(s *settings) error { s.lateBy = d; return checkLength("LateBy", d) })
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
func Retries(n int) Option {
	return option(func(s *settings) error {
		s.retries = n
		if n < 0 || n > mostRetries {
			return invalid("Retries(%d) is not between 0 and %d", n, mostRetries)
		}
		return nil
	})
}

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

// OnMisfire sets what becomes of missed ticks, see Misfire. The default is Skip.
func OnMisfire(m Misfire) JobOption {
	return jobOption(func(s *settings) error {
		s.misfire = m
		if m != Skip && m != Once {
			return invalid("OnMisfire(%d) is neither Skip nor Once", m)
		}
		return nil
	})
}

const (
	defaultAtMost = time.Hour
	smallest      = time.Millisecond
	mostRetries   = 1000
	mostLeast     = 3653 * 24 * time.Hour
)

// newSettings reads the options of a job, with the period of its ticks or 0.
func newSettings[O JobOption](every time.Duration, opts []O) (settings, error) {
	s := settings{every: every, atMost: defaultAtMost}
	for i, o := range opts {
		if any(o) == nil {
			return s, invalid("option %d is nil", i)
		}
		if err := o.applyJob(&s); err != nil {
			return s, err
		}
	}
	return s, s.check()
}

// newRequest reads the options of a call.
func newRequest(opts []CallOption) (request, error) {
	r := request{settings: settings{atMost: defaultAtMost}}
	for i, o := range opts {
		if o == nil {
			return r, invalid("option %d is nil", i)
		}
		if err := o.applyCall(&r); err != nil {
			return r, err
		}
	}
	r.within = r.lateBy
	return r, r.check()
}

// check returns an error if settings contradict each other.
func (s settings) check() error {
	switch {
	case s.atLeast > s.atMost:
		return invalid("AtLeast(%v) is above AtMost(%v)", s.atLeast, s.atMost)
	case s.every > 0 && s.spaced(s.every):
		return invalid("AtLeast(%v) is as long as the period, %v: it counts from the start, a little after the tick, so each second tick would be left out; set it lower", s.atLeast, s.every)
	}
	return nil
}

func checkLength(option string, d time.Duration) error {
	if d < smallest {
		return invalid("%s(%v) is below a millisecond", option, d)
	}
	return nil
}

func checkPeriod(d time.Duration) error {
	switch {
	case d < smallest:
		return invalid("the period %v is below a millisecond", d)
	case d%smallest != 0:
		return invalid("the period %v is no whole number of milliseconds", d)
	}
	return nil
}

// spaced reports whether AtLeast ends right about when the next tick comes.
func (s settings) spaced(interval time.Duration) bool {
	return s.atLeast > 0 && s.atLeast <= interval && s.atLeast >= interval-min(early, interval/10)
}
