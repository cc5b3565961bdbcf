package record

import "time"

// LastYear bounds a time that etcdkit stores or shows, so that it has four digits in each time zone, as RFC 3339 and
// JSON need.
const LastYear = 9998

// Time returns a stored time, in milliseconds since 1970. It is the zero Time if that is 0, none, or of a year before
// 1 or after LastYear: any program may store any number.
func Time(ms int64) time.Time {
	t := time.UnixMilli(ms)
	if year := t.UTC().Year(); ms == 0 || year < 1 || year > LastYear {
		return time.Time{}
	}
	return t
}

// mostAhead is by how much the clock of a process that writes records may be ahead of this one: the default of
// schedlock.Options.MaxSkew.
const mostAhead = time.Minute

// HasCome reports whether a time, in milliseconds since 1970, that another process has recorded counts at a time of this clock.
// A later one is of a wrong clock, and does not count until it has come: it would be the latest, and hide what is true.
func HasCome(ms int64, now time.Time) bool { return ms <= now.Add(mostAhead).UnixMilli() }

// RunCounts reports whether the record of a run counts at a time: its tick and its start, in milliseconds since 1970, have come.
func RunCounts(tick, start int64, now time.Time) bool {
	return HasCome(tick, now) && HasCome(start, now)
}
