// Package ticks is the arithmetic of a job's period: its fire times, and those that have no record; and when the offset of a
// zone changes. Pure: no I/O, no clock.
package ticks

import "time"

// Smallest is the shortest period: etcdkit stores times in milliseconds.
const Smallest = time.Millisecond

// At returns the latest fire time up to t, in UTC: fire times are the multiples of the period since the Unix
// epoch. The period is at least Smallest.
func At(period time.Duration, t time.Time) time.Time {
	ms, p := t.UnixMilli(), period.Milliseconds()
	return time.UnixMilli(ms - ((ms%p)+p)%p).UTC()
}

// Next returns the first fire time after t, in UTC.
func Next(period time.Duration, t time.Time) time.Time { return At(period, t).Add(period) }

// late is how long a tick may go without a start before something is wrong with the processes of its job.
const late = 30 * time.Second

// Unstarted returns the fire time that is due next, if it has come a while ago: no process starts the job. Otherwise
// it returns zero, as for a zero time.
func Unstarted(due, now time.Time) time.Time {
	if due.IsZero() || now.Sub(due) < late {
		return time.Time{}
	}
	return due
}

// Skipped are fire times between two records that have none.
type Skipped struct {
	Count       int
	First, Last time.Time
	Why         string // as far as that is stored
}

// Between returns the fire times after one record and before the next that no process has started. end is
// when the former run has ended; zero if that is not stored.
func Between(period time.Duration, former, end, next time.Time) Skipped {
	first := Next(period, former)
	n := int((next.Sub(first) + period - 1) / period)
	if n <= 0 {
		return Skipped{}
	}
	s := Skipped{n, first, first.Add(time.Duration(n-1) * period), "not stored: the run before, a cooldown, a pause, or no process was alive"}
	if !end.IsZero() && !s.Last.After(end) {
		s.Why = "the run before was active"
	}
	return s
}
