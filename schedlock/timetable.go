package schedlock

import (
	"slices"
	"sync"
	"time"
)

// Schedule tells fire times: the next one after t, or the zero time if there is none. It
// is the Schedule of robfig/cron. Time zones and summer time are its business: a tick is
// the instant that it returns. It must be safe for concurrent use, as those of the cron
// libraries are.
type Schedule interface {
	Next(t time.Time) time.Time
}

// timetable tells a cron library the fire times of a schedule, and for which of them the
// library calls now: it does not say so itself. It is safe for concurrent use.
type timetable struct {
	schedule Schedule

	mu      sync.Mutex
	zone    *time.Location // of the library's times
	planned []time.Time    // fire times that were told, in order: those to come, and the last that has come
	newest  time.Time      // the latest tick that has come
	passed  chan struct{}  // closed when a later one comes
}

// early is by how much a timer may be ahead of its time.
const early = 50 * time.Millisecond

// mostPlanned bounds what somebody can ask for ahead.
const mostPlanned = 1000

// next tells the library the first fire time after t.
func (tt *timetable) next(t, now time.Time) time.Time {
	next := tt.schedule.Next(t)
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.zone = t.Location()
	tt.come(now)
	i, known := slices.BinarySearchFunc(tt.planned, next, time.Time.Compare)
	if !known && !next.IsZero() && len(tt.planned) < mostPlanned {
		tt.planned = slices.Insert(tt.planned, i, next)
	}
	return next
}

// after returns the first fire time after t. A schedule without a time zone of its own
// takes that of the time it is asked with, so it is asked with the library's.
func (tt *timetable) after(t time.Time) time.Time {
	tt.mu.Lock()
	zone := tt.zone
	tt.mu.Unlock()
	if zone != nil {
		t = t.In(zone)
	}
	return tt.schedule.Next(t)
}

// due returns the fire time for which the library calls now: the latest that it was told
// and that has come. Calls do not come one for each fire time: a chain of the library may
// leave out some and delay others, it may be stopped and started, its machine suspended.
// So nothing is counted, and whoever calls twice gets the same tick twice, which starts
// once.
func (tt *timetable) due(now time.Time) time.Time {
	tt.mu.Lock()
	newest := tt.newest
	var soon time.Time
	come := tt.come(now)
	for _, t := range tt.planned {
		if t.After(now) && !t.After(now.Add(early)) && t.After(newest) {
			soon = t
			break
		}
	}
	tt.mu.Unlock()
	switch {
	case come.After(newest):
		return come
	case !soon.IsZero():
		return soon
	}
	// Called by hand, or by a library that got its fire times elsewhere.
	if t, ok := tt.latest(newest, now.Add(early)); ok {
		return t
	}
	if !newest.IsZero() {
		return newest
	}
	return now
}

// come returns the latest planned time that has come, and forgets the earlier ones.
func (tt *timetable) come(now time.Time) (latest time.Time) {
	i := len(tt.planned) - 1
	for i >= 0 && tt.planned[i].After(now) {
		i--
	}
	if i >= 0 {
		latest = tt.planned[i]
		tt.planned = slices.Delete(tt.planned, 0, i)
	}
	return latest
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
