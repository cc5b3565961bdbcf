package crontab

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/ticks"
)

// Schedule has the fire times of a line in a zone: a [schedlock.Schedule], whose text and zone a job stores,
// compares between processes and shows to operators. The zero value never fires. A Schedule is immutable,
// and its methods may be called at the same time.
type Schedule struct {
	text                              string
	loc                               *time.Location
	minute, hour, day, month, weekday set
	wild                              bool // the minute or the hour begins with *: it fires by the clock on the wall
	either                            bool // a day fits by its date or its weekday; otherwise by both
}

// shorthands are the words with the five fields that each means.
var shorthands = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads five fields, or a word such as @daily, whose times are those of a zone. The zone is an
// argument, so that no machine's own decides: [time.UTC], or what [time.LoadLocation] returns. With
// [time.Local], a line fires by the clock of each machine.
//
// Its error is a [*ParseError], the same at any hour.
func Parse(text string, zone *time.Location) (Schedule, error) {
	s, err := parse(text, zone)
	if err != nil {
		return Schedule{}, &ParseError{text, err}
	}
	return s, nil
}

// ParseError is a text that is no schedule.
type ParseError struct {
	Text string // as given
	Err  error  // which field is wrong, and what to write
}

// Error has the text and the reason.
func (e *ParseError) Error() string { return fmt.Sprintf("crontab %q: %s", e.Text, e.Err) }

// Unwrap returns the reason.
func (e *ParseError) Unwrap() error { return e.Err }

func parse(text string, zone *time.Location) (Schedule, error) {
	words := strings.Fields(text)
	if zone == nil {
		return Schedule{}, errors.New("a zone is needed, such as time.UTC or that of time.LoadLocation")
	}
	if len(words) > 0 && (strings.HasPrefix(words[0], "CRON_TZ=") || strings.HasPrefix(words[0], "TZ=")) {
		return Schedule{}, fmt.Errorf("%s is a zone, which is not a part of the text: load it by time.LoadLocation, and pass it", words[0])
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		meaning, ok := shorthands[words[0]]
		if !ok {
			return Schedule{}, unknownWord(words[0])
		}
		words = strings.Fields(meaning)
	}
	if len(words) != 5 {
		return Schedule{}, fmt.Errorf("%q has %d fields, and a schedule has five: minute, hour, day of the month, month, weekday", text, len(words))
	}
	s := Schedule{text: text, loc: zone}
	for i, f := range []struct {
		field
		to *set
	}{{minutes, &s.minute}, {hours, &s.hour}, {days, &s.day}, {months, &s.month}, {weekdays, &s.weekday}} {
		all, err := f.parse(words[i])
		if err != nil {
			return Schedule{}, err
		}
		*f.to = all
	}
	if s.weekday.has(7) {
		s.weekday |= 1
	}
	star := func(i int) bool { return strings.HasPrefix(words[i], "*") }
	s.wild = star(0) || star(1)
	s.either = !star(2) && !star(4)
	if begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); s.match(begin, begin.AddDate(horizon, 0, 0)).IsZero() {
		return Schedule{}, fmt.Errorf("%q never fires: no month that it names has such a day", text)
	}
	return s, nil
}

// unknownWord is the error of a word that is none of shorthands.
func unknownWord(word string) error {
	switch {
	case word == "@reboot":
		return errors.New("@reboot: the start of a machine is no time on which a fleet agrees")
	case strings.HasPrefix(word, "@every"):
		return errors.New("@every is of another scheduler: write a step, such as */15 * * * *, or give the job a period (schedlock.Every, etcdkit jobs run --every)")
	}
	return fmt.Errorf("%s is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually", word)
}

// MustParse is [Parse] for a text and a zone that are constants of the program. It panics with Parse's error.
func MustParse(text string, zone *time.Location) Schedule {
	s, err := Parse(text, zone)
	if err != nil {
		panic(err)
	}
	return s
}

// String returns the text of the schedule after its zone, as CRON_TZ=Europe/Berlin 30 2 * * *; and "never" for
// the zero value.
func (s Schedule) String() string {
	if s.loc == nil {
		return "never"
	}
	return "CRON_TZ=" + s.loc.String() + " " + s.text
}

// Text returns the five fields, or the word, as Parse was given them.
func (s Schedule) Text() string { return s.text }

// Location returns the zone of the schedule, or nil for the zero value.
func (s Schedule) Location() *time.Location { return s.loc }

// Changes of the clock by less than mostChange are caught up with, by lines that do not fire by the clock on the wall.
const mostChange = 3 * time.Hour

// horizon is how far Next looks: February 29 is a given weekday each 28 years, or 40 around 2100.
const horizon = 41

// Next returns the first fire time after t, in the location of t, or the zero time if there is none within
// 41 years.
func (s Schedule) Next(t time.Time) time.Time {
	if s.loc == nil {
		return time.Time{}
	}
	found, next := s.within(t.Truncate(time.Minute).Add(time.Minute))
	for found.IsZero() && !next.IsZero() && next.Before(t.AddDate(horizon, 0, 0)) {
		found, next = s.within(next)
	}
	if found.IsZero() {
		return found
	}
	return found.In(t.Location())
}

// within returns the first fire time from an instant on, before the clock of the zone is changed next; or when that is, or
// zero if it is not changed any more. Instants are whole minutes.
func (s Schedule) within(at time.Time) (found, next time.Time) {
	at = at.In(s.loc)
	begin, next := ticks.Offset(at)
	_, offset := at.Zone()
	wall := clock(at, offset)
	if !begin.IsZero() && !s.wild {
		_, before := begin.Add(-time.Second).In(s.loc).Zone()
		switch shown, shows := clock(begin, before), clock(begin, offset); {
		case shows.Sub(shown) >= mostChange || shown.Sub(shows) >= mostChange:
		case shows.Before(shown) && wall.Before(shown): // these times have been before
			wall = shown
		case at.Equal(begin) && shown.Before(shows):
			if missed := s.match(shown, shows); !missed.IsZero() {
				return at, next
			}
		}
	}
	var last time.Time
	if next.IsZero() {
		last = wall.AddDate(horizon, 0, 0)
	} else {
		last = clock(next, offset)
	}
	fits := s.match(wall, last)
	if fits.IsZero() {
		return time.Time{}, next
	}
	return fits.Add(-time.Duration(offset) * time.Second), next
}

// clock is what the clock on the wall shows at an instant, as if it were UTC.
func clock(at time.Time, offset int) time.Time {
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// match returns the first minute that fits from one time on the clock to before another, or zero.
func (s Schedule) match(from, before time.Time) time.Time {
	at := from.Truncate(time.Minute)
	if at.Before(from) {
		at = at.Add(time.Minute)
	}
	for at.Before(before) {
		if !s.month.has(int(at.Month())) {
			at = time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		day := at.Truncate(24 * time.Hour)
		if s.fits(at) {
			if minutes, found := s.inDay(int(at.Sub(day) / time.Minute)); found {
				if at = day.Add(time.Duration(minutes) * time.Minute); at.Before(before) {
					return at
				}
				break
			}
		}
		at = day.Add(24 * time.Hour)
	}
	return time.Time{}
}

// inDay returns the first minute of a day that fits and is not before a given one.
func (s Schedule) inDay(from int) (minute int, found bool) {
	hour := s.hour.from(from / 60)
	if hour == from/60 {
		if minute := s.minute.from(from % 60); minute < none {
			return 60*hour + minute, true
		}
		hour = s.hour.from(hour + 1)
	}
	return 60*hour + s.minute.from(0), hour < none
}

// fits reports whether a day fits.
func (s Schedule) fits(at time.Time) bool {
	day, weekday := s.day.has(at.Day()), s.weekday.has(int(at.Weekday()))
	if s.either {
		return day || weekday
	}
	return day && weekday
}
