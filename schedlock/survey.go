package schedlock

import (
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/ticks"
)

// What is asked of a schedule when its Job is made. The answers do not depend on the time at which it is
// made, so that a configuration is good or bad: fire times are looked at in two fixed years, one of them a
// leap year. Nothing here reads a clock or waits.

// asking returns the first fire time of a schedule after t, or zero.
type asking func(t time.Time) time.Time

// The years of a survey.
var (
	surveyed    = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	surveyedEnd = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
)

// forward asks a schedule for the first fire time after t. If its answer is not after t, as that of some
// libraries around a change of the clocks, it asks again for a later time, and returns zero if no answer
// is after t. ok is false if it had to.
func forward(s Schedule, t time.Time) (next time.Time, ok bool) {
	if next = s.Next(t); next.IsZero() || next.After(t) {
		return next, true
	}
	for _, later := range []time.Duration{time.Second, time.Minute, time.Hour, 2 * time.Hour, 25 * time.Hour} {
		if next = s.Next(t.Add(later)); next.After(t.Add(later)) {
			return next, false
		}
	}
	return time.Time{}, false
}

// fires reports whether a schedule has a fire time in the years of the survey, after them, or after now.
func (ask asking) fires(now time.Time) bool {
	return !ask(surveyed).IsZero() || !ask(now).IsZero()
}

// fixed reports whether the schedule returns the same fire times whenever it is asked. A schedule that
// counts from the time of asking, like @every, never does: no two processes would agree on a tick. One
// that differs at some places only, as some do around a change of the clocks, is fixed.
func (ask asking) fixed() bool {
	for _, from := range []time.Time{surveyed.AddDate(0, 0, 9), surveyed.AddDate(0, 6, 9)} {
		first := ask(from)
		second := ask(first)
		if first.IsZero() || second.IsZero() {
			return true
		}
		for _, before := range []time.Duration{2, 3, 8} {
			if ask(second.Add(-second.Sub(first) / before)).Equal(second) {
				return true
			}
		}
	}
	return false
}

// interval is the time between two fire times that follow each other.
type interval struct {
	from time.Time
	long time.Duration
}

// The bounds of a survey of intervals, in fire times: all of two years for a schedule of up to two a day;
// of others the first ones, and some around each end of a month and each change of the clocks.
const (
	mostIntervals  = 1500
	aroundMonth    = 24
	aroundChange   = 160 // of each minute, more than two hours
	beforeChange   = 70 * time.Minute
	aroundTurn     = 36 * time.Hour
	seldom         = 10 // a tenth of all intervals is not seldom any more
	longestChanges = 16 // of the clocks in two years: Morocco has four a year
)

// intervals returns intervals of a schedule: many of the usual ones, and the unusual ones. Changes are those
// of the clocks.
func (ask asking) intervals(changes []time.Time) (usual, all []interval) {
	usual = ask.walk(surveyed, mostIntervals)
	all = slices.Clip(usual)
	if len(usual) < mostIntervals {
		return usual, all
	}
	for month := range 24 {
		all = append(all, ask.walk(surveyed.AddDate(0, month, 0).Add(-aroundTurn), aroundMonth)...)
	}
	for _, change := range changes {
		all = append(all, ask.walk(change.Add(-aroundTurn), aroundMonth)...)
		all = append(all, ask.walk(change.Add(-beforeChange), aroundChange)...)
	}
	return usual, all
}

// walk returns up to most intervals after a time, and before the end of the survey.
func (ask asking) walk(from time.Time, most int) (out []interval) {
	last := ask(from)
	for range most {
		next := ask(last)
		if last.IsZero() || !next.After(last) || next.After(surveyedEnd) {
			break
		}
		out = append(out, interval{last, next.Sub(last)})
		last = next
	}
	return out
}

// changes returns when the clocks of a zone change in the years of the survey.
func changes(zone *time.Location) (out []time.Time) {
	t := surveyed.In(zone)
	for len(out) < longestChanges {
		_, end := ticks.Offset(t)
		if end.IsZero() || !end.Before(surveyedEnd) {
			break
		}
		out = append(out, end)
		t = end
	}
	return out
}

// closeTo returns the first interval that AtLeast of this length ends with, or that it outlasts although
// it ends within nearly all others: then it leaves out a tick by accident.
func closeTo(atLeast time.Duration, usual, all []interval) (hit interval, found bool) {
	onPurpose := deliberate(atLeast, usual)
	for _, i := range all {
		if tooClose(atLeast, i.long) || atLeast > i.long && !onPurpose {
			return i, true
		}
	}
	return interval{}, false
}

// deliberate reports whether AtLeast of this length skips ticks on purpose.
func deliberate(atLeast time.Duration, usual []interval) bool {
	outlasted := 0
	for _, i := range usual {
		if atLeast > i.long {
			outlasted++
		}
	}
	return outlasted*seldom >= len(usual)
}

// outlastedAgain returns the first interval that AtLeast outlasts after one further attempt, which starts when it has passed; none if
// it skips ticks on purpose.
func outlastedAgain(atLeast time.Duration, usual, all []interval) (hit interval, found bool) {
	if deliberate(atLeast, usual) {
		return interval{}, false
	}
	for _, i := range all {
		if outlasts(2*atLeast, i.long) {
			return i, true
		}
	}
	return interval{}, false
}

// outlasts reports whether a cooldown ends when the next tick comes, or after that.
func outlasts(d, interval time.Duration) bool { return d > interval || tooClose(d, interval) }

// tooClose reports whether AtLeast ends just when the next tick comes.
func tooClose(atLeast, interval time.Duration) bool {
	return atLeast <= interval && atLeast >= interval-min(early, interval/10)
}

// check returns an error if the schedule cannot have a Job with these settings. A schedule without a zone
// of its own is asked in that of now.
func (tt *timetable) check(s settings, now time.Time) error {
	zone := tt.home(now.Location())
	ask := asking(func(t time.Time) time.Time {
		next, _ := forward(tt.schedule, t.In(zone))
		return next
	})
	switch {
	case !ask.fires(now):
		return invalid("the schedule never fires: it has no fire time after %s", surveyed.Format(time.DateOnly))
	case !ask.fixed():
		return invalid("the schedule counts from the time at which it is asked, so processes would not agree on its ticks: pass Periods in its place")
	case s.atLeast == 0 && s.failed.most == 0:
		return nil
	}
	usual, all := ask.intervals(changes(zone))
	if i, found := closeTo(s.atLeast, usual, all); s.atLeast > 0 && found {
		return tooLong(s.atLeast, i.long, ", after "+i.from.Format(time.RFC3339))
	}
	if i, found := outlastedAgain(s.atLeast, usual, all); s.atLeast > 0 && s.retries > 0 && found {
		return tooLongAgain(s.atLeast, i.long, ", after "+i.from.Format(time.RFC3339))
	}
	return s.checkFailed(longestOf(all))
}

// longestOf returns the length of the longest interval, or 0 if there is none.
func longestOf(all []interval) (d time.Duration) {
	for _, i := range all {
		d = max(d, i.long)
	}
	return d
}
