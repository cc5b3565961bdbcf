package schedlock

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// request is one call for a tick: the settings of its job, and what applies to this call alone.
type request struct {
	settings
	tick     time.Time     // the fire time, or zero if the caller has none
	periodic bool          // the ticks are the periods of every
	within   time.Duration // the time after the tick in which an attempt may start; 0: until a later tick
	again    time.Time     // if within is 0, the end of further attempts; zero: no end

	next      time.Time                      // the next fire time, before which AtMost and AtLeast of an attempt after a failure end; zero: not known
	passed    <-chan struct{}                // closed when a later tick has come, or nil
	times     *timetable                     // of which the claim stores the plan, or nil
	called    bool                           // by Planned: no process has the job between two ticks
	callLate  time.Duration                  // by Planned
	fires     string                         // the fire times of the schedule, see timetable.print
	standby   func(*job, time.Time, request) // is on standby in place of the call, or nil
	apart     time.Duration                  // the least time after another tick, or 0
	single    bool                           // the function can be called once only
	lasting   bool                           // no other call of this process is for the tick, see refusals
	starts    *starts                        // of the Job, or nil
	asked     requestedRun                   // what has asked for the run, see RequestRun
	own       bool                           // the ctx is that of etcd.own, and no caller's
	withdrawn bool                           // a claim was withdrawn, and its events may still arrive
}

// timed reports whether the call is for a fire time, which other calls may claim.
func (r request) timed() bool { return r.periodic || !r.tick.IsZero() }

// ordered reports whether the call waits for its place in the order of the tick, and decides by
// events. A call for a fire time does, until it has withdrawn a claim: an event may be that of its own
// claim then.
func (r request) ordered() bool { return r.timed() && !r.withdrawn }

// tickAt returns the tick of the call, if it is made now.
func (r request) tickAt(now time.Time) time.Time {
	switch {
	case r.periodic && r.tick.IsZero():
		return Periods(r.every).at(now.Add(min(early, r.every/10)))
	case r.periodic:
		return Periods(r.every).at(r.tick)
	case !r.tick.IsZero():
		now = r.tick
	}
	return now.UTC().Truncate(smallest)
}

// late reports whether it is too late to start an attempt at a tick.
func (r request) late(p plan, now time.Time) bool {
	tick, attempt := p.tick, p.attempt
	if p.pause > 0 && !r.next.IsZero() && now.Add(r.occupies()).After(r.next) {
		return true
	}
	if r.within > 0 {
		return !now.Before(tick.Add(r.within))
	}
	return attempt > 1 && !r.again.IsZero() && !now.Before(r.again)
}

// errLate ends the claim of a tick whose time has passed.
var errLate = errors.New("it is too late for the tick")

// tooLate reports whether a claim has failed because it was too late for the tick. The ctx of a claim
// in flight may end a moment before the ctx of the call, since both are derived from the one that ends.
func tooLate(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, errLate) || ended(ctx) == errLate) //nolint:errorlint // by this package
}

// bound derives a ctx that ends, by errLate, when it is too late for a tick.
func (r request) bound(ctx context.Context, tick, now time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := func() { cancel(endedBy{errLate}) }
	if r.within > 0 {
		left := tick.Add(r.within).Sub(now)
		if left <= 0 {
			late()
		}
		timer := time.AfterFunc(left, late)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	if r.passed != nil {
		go func() {
			select {
			case <-r.passed:
				late()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// boundRetry is bound for an attempt after a failure whose record etcd has not confirmed: the pause follows that.
func (r request) boundRetry(ctx context.Context, tick, now time.Time) (context.Context, context.CancelFunc) {
	last := r.again
	if r.within > 0 {
		last = tick.Add(r.within)
	}
	if before := r.next.Add(-r.occupies()); !r.next.IsZero() && (last.IsZero() || before.Before(last)) {
		last = before
	}
	if !last.IsZero() {
		r.within = max(1, last.Add(-r.failed.pause).Sub(tick))
	}
	return r.bound(ctx, tick, now)
}

// since returns the first tick that keeps a tick from being claimed.
func (r request) since(tick time.Time) time.Time {
	if r.apart == 0 {
		return tick
	}
	return tick.Add(smallest - r.apart)
}

// halfway returns the request for the tick between two periods.
func (r request) halfway(now time.Time) request {
	half := r.every / 2
	r.periodic, r.again = false, r.tick.Add(r.every)
	r.tick = r.tick.Add(half)
	r.within = cmp.Or(r.lateBy, now.Sub(r.tick)+inTime(half))
	return r
}
