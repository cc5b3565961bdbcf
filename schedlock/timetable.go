package schedlock

import (
	"sync"
	"time"
)

// Schedule has the fire times of a job: Next returns the first one after t, or the zero time if
// there is none. It is the Schedule of robfig/cron. Time zones and daylight saving are up to the
// schedule: a tick is the instant that Next returns. It must be safe for concurrent use, as the
// schedules of cron libraries are.
type Schedule interface {
	Next(t time.Time) time.Time
}

// timetable is the fire times of a schedule, and knows for which of them a cron library calls
// now: the library does not say so itself. A tick is only ever what the schedule yields for
// the present time, never what somebody has asked for: a cron library asks with the method
// with which a log line does. It is safe for concurrent use.
type timetable struct {
	schedule Schedule

	mu      sync.Mutex
	zone    *time.Location // in which the schedule is asked, once it is known
	printed string         // see print
	newest  time.Time      // the latest tick that has come
	passed  chan struct{}  // closed when a later one comes
}

// early is by how much a timer may be ahead of its time.
const early = 50 * time.Millisecond

// next returns the first fire time after t, in the location of t. The first call sets the zone
// in which the schedule is asked, if it is not set. zone is that if t's own would have had
// another answer, else nil.
func (tt *timetable) next(t time.Time) (next time.Time, zone *time.Location) {
	tt.mu.Lock()
	if tt.zone == nil {
		tt.zone = t.Location()
	}
	zone = tt.zone
	tt.mu.Unlock()
	own := tt.schedule.Next(t)
	if t.Location() == zone {
		return own, nil
	}
	next = tt.schedule.Next(t.In(zone))
	if next.Equal(own) {
		return own, nil
	}
	return next.In(t.Location()), zone
}

// in sets the zone in which the schedule is asked.
func (tt *timetable) in(zone *time.Location) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.zone, tt.printed = zone, ""
}

// after returns the first fire time after t. A schedule without a time zone of its own
// takes that of the time with which it is asked, so it is asked with the library's.
func (tt *timetable) after(t time.Time) time.Time {
	tt.mu.Lock()
	zone := tt.zone
	tt.mu.Unlock()
	if zone != nil {
		t = t.In(zone)
	}
	return tt.schedule.Next(t)
}

// due returns the fire time for which the library calls now: the latest that has come. Calls
// do not come one for each fire time: a chain of the library may leave out some and delay
// others, it may be stopped and started, its machine suspended. So nothing is counted, and
// two calls for the same tick get the same one, which starts once.
func (tt *timetable) due(now time.Time) time.Time {
	tt.mu.Lock()
	newest := tt.newest
	tt.mu.Unlock()
	ahead := early
	if p, ok := tt.schedule.(Periods); ok {
		ahead = min(ahead, time.Duration(p)/10)
	}
	if t, ok := tt.latest(newest, now.Add(ahead)); ok {
		return t
	}
	if !newest.IsZero() {
		return newest
	}
	return now
}

// setBack forgets the newest tick if it lies beyond the horizon: this process's clock was ahead
// when that came, and has been set back since. Calls that stand by for it end.
func (tt *timetable) setBack(horizon time.Time) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.newest.After(horizon) {
		close(tt.passed)
		tt.newest, tt.passed = time.Time{}, nil
	}
}

// comes notes that a tick has come. It returns a channel that is closed when a later one
// comes, and false if one has come before.
func (tt *timetable) comes(tick time.Time) (passed <-chan struct{}, ok bool) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tick.Before(tt.newest) {
		return nil, false
	}
	if tick.After(tt.newest) {
		if tt.passed != nil {
			close(tt.passed)
		}
		tt.newest, tt.passed = tick, make(chan struct{})
	}
	return tt.passed, true
}

// latest returns the latest fire time after last and up to now. It looks near now first,
// so that a long outage of a busy schedule costs little.
func (tt *timetable) latest(last, now time.Time) (latest time.Time, ok bool) {
	for window := time.Minute; ; window *= 60 {
		from := now.Add(-window)
		whole := from.Before(last)
		if whole {
			from = last
		}
		for t := tt.after(from); !t.IsZero() && !t.After(now) && t.After(from); t = tt.after(t) {
			latest, ok, from = t, true, t
		}
		if ok || whole || window > 10*365*24*time.Hour {
			return latest, ok
		}
	}
}

// fixed tells whether the schedule returns the same fire times whenever it is asked.
// Those that count from the time of asking, like @every, do not: no two processes would
// agree on a tick.
func (tt *timetable) fixed(now time.Time) bool {
	first := tt.after(now)
	second := tt.after(first)
	if first.IsZero() || second.IsZero() {
		return true
	}
	return tt.after(first.Add(second.Sub(first) / 2)).Equal(second)
}
