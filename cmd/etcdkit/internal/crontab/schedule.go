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

// surveyed is how many fire times are looked at for the shortest distance of two: a line with more than one in four minutes has
// that distance in its first hour.
const surveyed = 400

// Shortest returns the shortest time between two fire times of a year, or the year if it has fewer than two. It is the same on
// each machine, whenever it is asked for.
func (s Schedule) Shortest() time.Duration {
	shortest := year
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := s.Next(from)
	for range surveyed {
		next := s.Next(last)
		if next.IsZero() || next.Sub(from) > year {
			break
		}
		shortest = min(shortest, next.Sub(last))
		last = next
	}
	return shortest
}
