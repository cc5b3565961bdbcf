package schedlock

import "time"

// A daily job at a time of day, under an adapter whose ticks are days in UTC: on the day on which the clocks
// go forward it comes 23 hours after the day before, possibly in the same day in UTC. That is a tick of its
// own, halfway between two days.

// shift is more than the clocks of a zone go forward at a time, with what a call may be late. The zone of the scheduler is not
// known: it need not be that of the machine. So a second call in a period counts as one of the next day if it is as late as that.
const shift = 80 * time.Minute

// nextDay reports whether a call is for the next of some days although it comes in the period of the one
// before. former is when this process called for that, or zero; started is when its run was started.
func nextDay(every time.Duration, former, started, now time.Time) bool {
	switch {
	case every%(24*time.Hour) != 0:
		return false
	case !former.IsZero():
		return now.Sub(former) >= every-shift
	case started.IsZero() || now.Sub(started) >= every:
		return false
	}
	// Another process has called for that. Its timer may have another phase, unless it is of the same time
	// of day.
	late := wall(now).Sub(wall(started.In(now.Location()))) - every
	return late.Abs() < 5*time.Minute && now.Sub(started) < every-20*time.Minute
}

// wall returns what the clocks of the time's zone show, as a time in UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
