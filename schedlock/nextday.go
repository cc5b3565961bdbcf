package schedlock

import (
	"context"
	"time"
)

// A daily job at a time of day, under an adapter whose ticks are days in UTC: on the day on which the clocks
// go forward it comes 23 hours after the day before, possibly in the same day in UTC. That is a tick of its
// own, halfway between two days.

// shift is more than the clocks of a zone go forward at a time, with what a call may be late. The zone of the scheduler is not
// known: it need not be that of the machine. So a second call in a period counts as one of the next day if it is as late as that,
// but not as late as unshifted: no clock went forward then.
const (
	shift     = 80 * time.Minute
	unshifted = 20 * time.Minute
)

// nextDay reports whether a call is for the next of some days although it comes in the period of the one
// before. former is when this process called for that, or zero; started is when its run was started, or zero.
func nextDay(every time.Duration, former, started, now time.Time) bool {
	switch after := now.Sub(former); {
	case every%day != 0:
		return false
	case !former.IsZero() && after >= every-shift && after < every-unshifted:
		return true
	case started.IsZero() || now.Sub(started) >= every:
		return false
	}
	// Another process has called for that, or this one has called late. The timer of the other one may have another phase,
	// unless it is of the same time of day.
	late := wall(now).Sub(wall(started.In(now.Location()))) - every
	return late.Abs() < 5*time.Minute && now.Sub(started) < every-unshifted
}

// day is the period of whose multiples a call can be for the next one.
const day = 24 * time.Hour

// awaitDay returns the time for which a call counts that is made now. If it comes nearly a period after the one of this
// process before, within the period of that, its timer was early: it counts by the monotonic clock, and the wall clock was set back
// since. Then awaitDay waits for the next period. Otherwise two processes would start that: this one before its beginning.
func awaitDay(ctx context.Context, l *Locker, name string, r request, now time.Time) time.Time {
	if r.every%day != 0 {
		return now
	}
	tick := r.tickAt(now)
	next := tick.Add(r.every)
	former := l.job(name).callers.formerOf(tick)
	if former.IsZero() || now.Sub(former) < r.every-unshifted || next.Sub(now) > l.opts.MaxSkew {
		return now
	}
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	select {
	case <-time.After(next.Sub(now)):
	case <-ctx.Done(): // the claim returns the reason
	}
	return next
}

// wall returns what the clocks of the time's zone show, as a time in UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
