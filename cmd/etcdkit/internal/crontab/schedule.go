package crontab

import (
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// Schedule has the fire times of a line, and what the command asks of them.
type Schedule struct{ crontab.Schedule }

// Parse reads five fields, or a word such as @daily, whose times are those of a zone. For a text that is none it
// returns an error, the reason alone: the text is in the line that is shown with it.
func Parse(text string, zone *time.Location) (Schedule, error) {
	s, err := crontab.Parse(text, zone)
	if wrong, ok := errors.AsType[*crontab.ParseError](err); ok {
		return Schedule{}, wrong.Err
	}
	return Schedule{s}, err
}

// Latest returns the latest fire time that is not after t, or the zero time if there was none in forty years.
func (s Schedule) Latest(t time.Time) (latest time.Time) {
	for span := time.Hour; span < 41*year; span *= 4 {
		for at := s.Next(t.Add(-span)); !at.IsZero() && !at.After(t); at = s.Next(at) {
			latest = at
		}
		if !latest.IsZero() {
			return latest
		}
	}
	return time.Time{}
}
