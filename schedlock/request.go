package schedlock

import (
	"context"
	"errors"
	"time"
)

// request is one call for a tick: the settings of its job, and what holds for this call.
type request struct {
	settings
	tick     time.Time     // the fire time, or zero if the caller gives none
	periodic bool          // without a fire time the tick is the present period of every
	within   time.Duration // after its tick an attempt may start; 0: a later tick is the bound
	again    time.Time     // without within, a further attempt starts before that; zero: no bound

	passed <-chan struct{}                // closed when a later tick has come, or nil
	fires  string                         // of a schedule, see timetable.print
	aside  func(*job, time.Time, request) // stands by in place of the call, or nil
	single bool                           // the function can be called once only
	anew   bool                           // a claim was taken back, of which word may still come
}

// timed reports whether the call is for a fire time, which others may have claimed.
func (r request) timed() bool { return r.periodic || !r.tick.IsZero() }

// ordered reports whether the call waits for its place in the order of the tick, and heeds what
// events have shown of it: the first claim of a call for a fire time does. After a claim that was
// taken back an event may still be of that claim.
func (r request) ordered() bool { return r.timed() && !r.anew }

// tickAt returns the tick of a call that is made now.
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
func (r request) late(tick time.Time, attempt int, now time.Time) bool {
	if r.within > 0 {
		return !now.Before(tick.Add(r.within))
	}
	return attempt > 1 && !r.again.IsZero() && !now.Before(r.again)
}

// errLate ends the claim of a tick whose time has passed.
var errLate = errors.New("it is too late for the tick")

// bound derives a ctx that ends, by errLate, when it is too late for a tick.
func (r request) bound(ctx context.Context, tick, now time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := func() { cancel(endedBy{errLate}) }
	var timer *time.Timer
	if r.within > 0 {
		left := tick.Add(r.within).Sub(now)
		if left <= 0 {
			late()
		}
		timer = time.AfterFunc(left, late)
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
	return ctx, func() {
		cancel(nil)
		if timer != nil {
			timer.Stop()
		}
	}
}
