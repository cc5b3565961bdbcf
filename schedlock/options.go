package schedlock

import (
	"cmp"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// CallOption configures one call of Locker.Do: Tick, Every, Apart, Planned, and each Option. Of two options that
// set the same thing, the last one counts.
type CallOption interface{ applyCall(*request) error }

// JobOption configures a Job: OnMisfire, and each Option.
type JobOption interface{ applyJob(*settings) error }

// Option configures a call of Locker.Do, a Job and the adapters alike: AtMost, AtLeast, LateBy, Retries and, of those that can call
// the function again, RetryFailed.
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
	failed  afterFailure
	misfire Misfire
}

// Tick sets the fire time of a call: the instant that the schedule has planned, the same in all
// processes, not the time at which the call is made. It is truncated to milliseconds.
func Tick(t time.Time) CallOption {
	return callOption(func(r *request) error {
		r.tick = t
		switch {
		case t.IsZero():
			return invalid("the tick is the zero time")
		case t.Year() < 1 || t.Year() > record.LastYear:
			return invalid("the tick is in the year %d", t.Year())
		}
		return nil
	})
}

// Every makes one tick of each period since the Unix epoch: all calls within one period are for the
// same tick. It is for tickers that processes start at different times. Together with Tick it
// rounds the fire time down to its period. A call that comes up to 50 ms before the next period, or
// a tenth of a period below 500 ms, counts for the next one, since timers may be early.
//
// A day is one of UTC. A call at a time of day, such as 01:30 in Berlin, can come twice in one when the clocks go forward, and the
// second one does not start: pass its fire time with Tick alone, or use Locker.Job.
func Every(period time.Duration) CallOption {
	return callOption(func(r *request) error {
		r.every, r.periodic = period, true
		return checkPeriod(fmt.Sprintf("Every(%v)", period), period)
	})
}

// AtMost bounds how long the function may run; the default is one hour. When AtMost has passed, the
// run's context ends with ErrTooLong. The job is released when the function returns, or after the
// session's margin if it does not return. AtMost has no effect on how soon a crashed run is
// detected: the session's TTL decides that.
func AtMost(d time.Duration) Option {
	return option(func(s *settings) error { s.atMost = d; return checkLength("AtMost", d) })
}

// AtLeast keeps the job from starting again for d after a start, even if the run has ended long
// before, its process has crashed or its session was closed. If the process has ended and etcd has
// another leader since, etcd would keep it locked for longer: a call later than d and Options.MaxSkew after
// the start, by all known clocks, ends that. The default is 0; d is at most ten years, and does not depend on AtMost.
//
// Ticks that come within d are skipped. A run starts a little after its tick, so a d close to the
// interval of the job would skip every second tick by accident. The interval is the period of the
// job, or any time between two fire times of a Job's schedule, as in the years 2024 and 2025. A d
// that equals an interval, or is shorter by at most 50 ms (by a tenth of an interval below 500 ms),
// is refused with ErrInvalid. So is one that is longer than fewer than a tenth of the intervals:
// 23 hours for a daily job in a zone whose clocks change. A longer d is accepted, and skips ticks.
// With Retries a further attempt starts after d, and lasts d again: unless d skips ticks on purpose, twice d that is not below an
// interval is refused in the same way. The answer does not depend on the time of the call.
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

// LateBy bounds how long after its tick a run may still start, by the clock of the process that
// starts it. It applies to each attempt in each process, also after a restart or a suspension of
// the machine. Without LateBy, Do starts a tick until a later tick is claimed; a Job and the
// adapters, and further attempts with Every and after Trigger, start it until the next fire time.
func LateBy(d time.Duration) Option {
	return option(func(s *settings) error { s.lateBy = d; return checkLength("LateBy", d) })
}

// Retries allows up to n further attempts at a tick whose run was lost: its process died, was
// partitioned, or was paused for longer than its session's TTL. The default is 0: the tick is
// recorded as lost. A run that ended with an error is not repeated, see RetryFailed. A run whose end was not
// recorded before its lease ended is repeated by other processes, although its function has
// returned: see Result.Unconfirmed.
//
// A further attempt obeys the lateness of the first one, in whichever process: it starts until
// LateBy has passed, by default before the next fire time. Do with Tick and without Every does not
// know the next fire time: there, without LateBy, only a later tick is a bound.
//
// Further attempts are made by calls on standby: with Retries, a call that finds its tick claimed
// does not return at once, but waits until the run has ended or LateBy has passed. A Job that
// begins later looks once for a lost run, see Job.Next.
//
// A loss is detected after the TTL and half a second. If the calls on standby end before that,
// they report Late, and there is no further attempt. Under a Job and gocronlock.NewCron they end when the
// next tick comes. Under Wrap and gocronlock.New they end with the period, or after LateBy if that
// is longer: set LateBy above the duration of a run plus the TTL. Ticks that come meanwhile are
// skipped as StillRunning.
func Retries(n int) Option {
	return option(func(s *settings) error {
		s.retries = n
		if n < 0 || n > mostRetries {
			return invalid("Retries(%d) is not between 0 and %d", n, mostRetries)
		}
		return nil
	})
}

// afterFailure is RetryFailed.
type afterFailure struct {
	most  int
	pause time.Duration
}

// RetryFailed allows up to n further attempts at a tick whose run has returned an error or has panicked, each a pause
// after the failure. The default is 0: a failed run is not tried again. Attempts after a failure and after a loss
// (Retries) are counted together: none starts as attempt n+2. A run that exceeded AtMost or was unlocked is not
// tried again.
//
// A further attempt starts only if AtMost and AtLeast, from then on, end before the next fire time, so that it is not in the way
// of the next tick: set AtMost, which is an hour by default. The pause begins when AtLeast of the run before has passed. If no
// interval of the job is long enough for that, RetryFailed is refused with ErrInvalid. Like each attempt it starts within LateBy, never beside
// another run, and not after a later tick was claimed. The process whose run has failed makes it, or another one whose
// call is on standby, as for Retries, or that begins later, see Job.Next. Each measures the pause by its own clock from
// when it has seen the failure. If etcd has not confirmed the record of the failure, the call waits for that, with a warning, as long as another
// attempt could start in time. A panic continues
// only after the last attempt of a call. Record.Earlier has the attempts before. Options.Done gets the result of the last attempt
// that a call has made; the failures before it are warnings.
//
// Processes need not agree on RetryFailed: one without it makes no further attempts. The lockers for gocron and Wrap
// refuse it, since they cannot call the function again or do not learn of its error.
func RetryFailed(n int, pause time.Duration) Option {
	return option(func(s *settings) error {
		s.failed = afterFailure{n, pause}
		switch {
		case n < 1 || n > mostRetries:
			return invalid("RetryFailed(%d, %v): the number of attempts is not between 1 and %d", n, pause, mostRetries)
		case pause < smallest:
			return invalid("RetryFailed(%d, %v): the pause is below a millisecond", n, pause)
		}
		return nil
	})
}

// repeats reports whether there may be further attempts at a tick.
func (s settings) repeats() bool { return s.retries > 0 || s.failed.most > 0 }

// Misfire is the policy for missed ticks: those whose time passed without a start because no
// process was alive or etcd was not available. A tick that was skipped because a run was active,
// the job cooled down or was paused is not missed, and never starts.
type Misfire int

// The policies for misfires.
const (
	// Skip starts no missed tick.
	Skip Misfire = iota
	// Once starts the latest missed tick, once in the whole fleet, when a process begins to use the
	// job, see Job.Next, however long ago it was missed; LateBy, if given, bounds that. If the job
	// is locked or cools down, the process waits for the end of that first. A tick that came after
	// the last start was missed if that run was lost, or had ended before the tick came. If the
	// job has never run, or its schedule has changed since the last start, ticks are missed from the
	// first one on that was planned: fire times of a new schedule from before it was in force do not count. Of a job that
	// ran without a schedule until now (Do without Planned) none was missed, unless
	// its last tick is a fire time of this one.
	Once
)

// OnMisfire sets the policy for missed ticks, see Misfire. The default is Skip.
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
			return s, invalid("Option %d is nil", i+1)
		}
		if err := o.applyJob(&s); err != nil {
			return s, err
		}
	}
	return s, s.check(every)
}

// newRequest reads the options of a call.
func newRequest(opts []CallOption) (request, error) {
	r := request{settings: settings{atMost: defaultAtMost}}
	for i, o := range opts {
		if o == nil {
			return r, invalid("Option %d is nil", i+1)
		}
		if err := o.applyCall(&r); err != nil {
			return r, err
		}
	}
	r.within = r.lateBy
	return r, cmp.Or(r.check(r.every), r.checkFailed(r.every))
}

// checkFailed returns an error if AtMost leaves no time for a further attempt after a failure, or AtLeast, which passes before the
// pause and keeps the next tick from being skipped after the attempt. interval is the longest time between two ticks, or 0 if it is not
// known.
func (s settings) checkFailed(interval time.Duration) error {
	switch left := interval - s.failed.pause; { // no sum, which could exceed a Duration
	case s.failed.most == 0 || interval == 0 || left > 0 && s.occupies() < left-s.atLeast:
		return nil
	case s.atMost < left:
		return invalid("RetryFailed with AtLeast(%v): a further attempt starts after AtLeast and a pause of %v, and none ends with its AtMost(%v), and its own AtLeast, before the next tick, at most %v after the one before: set AtLeast lower, or leave one of the two out", s.atLeast, s.failed.pause, s.atMost, interval)
	}
	return invalid("RetryFailed: with AtMost(%v) and a pause of %v no further attempt ends before the next tick, at most %v after the one before: set AtMost lower, or the pause", s.atMost, s.failed.pause, interval)
}

// occupies returns how long a run may keep the next one from starting.
func (s settings) occupies() time.Duration { return max(s.atMost, s.atLeast) }

// check returns an error if AtLeast ends just when the next tick comes, which would then be skipped, or that of an attempt after a
// lost run ends after that. interval is the time between two ticks, or 0 if it is not known.
func (s settings) check(interval time.Duration) error {
	switch {
	case s.atLeast == 0 || interval == 0 || s.atLeast > interval: // to skip ticks
		return nil
	case tooClose(s.atLeast, interval):
		return tooLong(s.atLeast, interval, "")
	case s.retries > 0 && outlasts(2*s.atLeast, interval):
		return tooLongAgain(s.atLeast, interval, "")
	}
	return nil
}

// tooLong is the error of an AtLeast that would skip a tick by accident. where says which one.
func tooLong(atLeast, interval time.Duration, where string) error {
	return invalid("AtLeast(%v) is as long as the time between two ticks, %v%s: it counts from the start, a little after the tick, so the next tick would be skipped; set it lower, or clearly longer to skip ticks", atLeast, interval, where)
}

// tooLongAgain is the error of an AtLeast that would skip a tick after a further attempt.
func tooLongAgain(atLeast, interval time.Duration, where string) error {
	return invalid("AtLeast(%v) with Retries: a further attempt after a lost run starts when AtLeast has passed and lasts as long again, so the next tick, %v after the one before%s, would be skipped; set AtLeast below half of that, or leave Retries out", atLeast, interval, where)
}

func checkLength(option string, d time.Duration) error {
	if d < smallest {
		return invalid("%s(%v) is below a millisecond", option, d)
	}
	return nil
}

func checkPeriod(period string, d time.Duration) error {
	switch {
	case d < smallest:
		return invalid("%s is below a millisecond", period)
	case d%smallest != 0:
		return invalid("%s is not a whole number of milliseconds", period)
	}
	return nil
}
