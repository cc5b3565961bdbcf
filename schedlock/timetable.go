package schedlock

import (
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// Schedule has the fire times of a job: Next returns the first one after t, or the zero time if
// there is none. It is the Schedule of robfig/cron. Time zones and daylight saving are up to the
// schedule: a tick is the instant that Next returns. It must be safe for concurrent use, as the
// schedules of cron libraries are.
type Schedule interface {
	Next(t time.Time) time.Time
}

// timetable has the fire times of a schedule, and finds the one for which a cron library calls now,
// since the library does not pass it. A tick is always what the schedule yields for the present
// time, never what a caller of Next has asked for: a cron library and a log line ask with the same
// method. It is safe for concurrent use.
type timetable struct {
	schedule Schedule
	stuck    func(asked time.Time) // called for each answer that was not after what was asked, or nil

	mu      sync.Mutex
	zone    *time.Location // in which the schedule is asked, once it is known
	text    string         // of the crontab, if a library has passed it on
	printed string         // see print
	newest  time.Time      // the latest tick that has come
	passed  chan struct{}  // closed when a later one comes
}

// early is how much too early a timer may fire.
const early = 50 * time.Millisecond

// next returns the first fire time after t, in the location of t. The first call sets the zone in
// which the schedule is asked, if it is not set. next returns that zone if t's own zone would have
// another answer, and otherwise nil.
func (tt *timetable) next(t time.Time) (next time.Time, zone *time.Location) {
	tt.mu.Lock()
	if tt.zone == nil {
		tt.zone = t.Location()
	}
	zone = tt.zone
	tt.mu.Unlock()
	own := tt.ask(t)
	if t.Location() == zone {
		return own, nil
	}
	next = tt.ask(t.In(zone))
	if next.Equal(own) {
		return own, nil
	}
	return next.In(t.Location()), zone
}

// ask returns the first fire time after t, in the location of t. It is after t, or zero.
func (tt *timetable) ask(t time.Time) time.Time {
	next, ok := forward(tt.schedule, t)
	if !ok && tt.stuck != nil {
		tt.stuck(t)
	}
	return next
}

// in sets the text of a crontab, and the zone in which the schedule is asked.
func (tt *timetable) in(text string, zone *time.Location) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.text, tt.zone, tt.printed = text, zone, ""
}

// textIn returns the text of the schedule in a zone, its home, or "". A zone at its beginning that is the same says nothing more: the
// text is as that of a process that has the zone apart from it.
func (tt *timetable) textIn(home *time.Location) string {
	tt.mu.Lock()
	text := tt.text
	tt.mu.Unlock()
	if text == "" {
		text = textOf(tt.schedule)
	}
	if first, rest, _ := strings.Cut(text, " "); first == "CRON_TZ="+home.String() || first == "TZ="+home.String() {
		return strings.TrimSpace(rest)
	}
	return text
}

// home returns the zone of the schedule: its own, or the one in which it is asked, or that of a caller.
func (tt *timetable) home(caller *time.Location) *time.Location {
	if own := zoneOf(tt.schedule); own != nil {
		return own
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if own := zoneIn(tt.text); own != nil {
		return own
	}
	if tt.zone != nil {
		return tt.zone
	}
	return caller
}

// after returns the first fire time after t. A schedule without a time zone of its own uses the
// zone of its argument, so it is asked in the library's zone.
func (tt *timetable) after(t time.Time) time.Time {
	tt.mu.Lock()
	zone := tt.zone
	tt.mu.Unlock()
	if zone != nil {
		t = t.In(zone)
	}
	return tt.ask(t)
}

// meant is how long before a fire time a call can only be for that one: a timer that counts by the
// monotonic clock comes early by as much as the wall clock was set back. In short intervals it is a
// twentieth.
const meant = 10 * time.Second

// due returns the fire time for which the library calls now, and in how long it comes: the latest one
// that has come, or the next one if the call is a little before it. ok is false if none has come. There
// is not one call for each fire time: a chain of the library may skip or delay calls, the library may be
// stopped and started, the machine may be suspended. So nothing is counted, and two calls for one tick
// get the same tick, which starts once.
func (tt *timetable) due(now time.Time) (tick time.Time, in time.Duration, ok bool) {
	tt.mu.Lock()
	newest := tt.newest
	tt.mu.Unlock()
	ahead := early
	if p, ok := tt.schedule.(Periods); ok {
		ahead = min(ahead, time.Duration(p)/10)
	}
	tick, ok = tt.latest(newest, now.Add(ahead))
	if !ok && !newest.IsZero() {
		tick, ok = newest, true
	}
	from := now
	if tick.After(now) {
		from = tick
	}
	next := tt.after(from)
	if in = next.Sub(now); next.IsZero() || in > meant || ok && in > next.Sub(tick)/20 {
		return tick, 0, ok
	}
	return next, in, true
}

// setBack drops the newest tick if it is beyond the horizon: this process's clock was ahead when
// the tick came, and was set back since. Calls on standby for that tick end.
func (tt *timetable) setBack(horizon time.Time) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.newest.After(horizon) {
		close(tt.passed)
		tt.newest, tt.passed = time.Time{}, nil
	}
}

// advance records that a tick has come. It returns a channel that is closed when a later tick
// comes, and false if a later one has come before.
func (tt *timetable) advance(tick time.Time) (passed <-chan struct{}, ok bool) {
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

// latest returns the latest fire time after last and up to now. It searches near now first, so that
// a long outage of a busy schedule costs little.
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

// fires reports whether a tick is a fire time of the schedule.
func (tt *timetable) fires(tick time.Time) bool { return tt.after(tick.Add(-smallest)).Equal(tick) }

// dueAgain returns the plan of a claim with its tick due again, or "" if there is no plan or the tick is that of a trigger
// and no fire time, for which no process waits.
func (tt *timetable) dueAgain(plan string, tick time.Time) string {
	if plan == "" || !tt.fires(tick) {
		return ""
	}
	p, _ := record.DecodePlan([]byte(plan))
	p.DueMS = tick.UnixMilli()
	return p.Encode()
}
