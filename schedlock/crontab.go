package schedlock

import (
	"reflect"
	"strings"
	"time"
)

// Crontab is a schedule with the text from which another parser than [schedlock/crontab] has read it.
// Processes that use a job compare the text and the zone in place of fire times, and etcd shows both to
// operators:
//
//	const spec = "0 9 * * 1-5"
//	parsed, err := cron.ParseStandard(spec)
//	if err != nil {
//		return err
//	}
//	berlin, err := time.LoadLocation("Europe/Berlin")
//	if err != nil {
//		return err
//	}
//	job, err := lk.Job("invoices", schedlock.Crontab{Text: spec, Zone: berlin, Schedule: parsed}, send)
//
// Two parsers that read one text in two ways are not found by that. That parser also decides what happens
// in the nights in which the clock is changed; a job may have no fire time, or two, in one.
//
// [schedlock/crontab]: https://pkg.go.dev/github.com/etcdkit/etcdkit/schedlock/crontab
type Crontab struct {
	// Text is what was parsed.
	Text string
	// Zone is where the schedule is asked. If it is nil, the zone at the beginning of Text counts
	// ("CRON_TZ=Europe/Berlin 0 9 * * *"), and without one that of the caller.
	Zone *time.Location
	// Schedule has the fire times.
	Schedule Schedule
}

// Next returns the first fire time after t, in the location of t.
func (c Crontab) Next(t time.Time) time.Time {
	if c.Zone == nil {
		return c.Schedule.Next(t)
	}
	next := c.Schedule.Next(t.In(c.Zone))
	if next.IsZero() {
		return next
	}
	return next.In(t.Location())
}

// checkSchedule returns an error for a schedule that cannot be asked.
func checkSchedule(s Schedule) error {
	for {
		if s == nil {
			return invalid("the schedule is nil")
		}
		c, ok := s.(Crontab)
		if !ok {
			return nil
		}
		if s = c.Schedule; s == nil {
			return invalid("Crontab.Schedule is nil")
		}
	}
}

// parsed is a schedule that has the text from which it was parsed, such as those of package crontab.
type parsed interface {
	Text() string
	Location() *time.Location
}

// textOf returns the text of a schedule, or "".
func textOf(s Schedule) string {
	text := ""
	switch s := s.(type) {
	case Crontab:
		text = s.Text
	case parsed:
		text = s.Text()
	}
	return strings.Join(strings.Fields(text), " ")
}

// zoneOf returns the zone that a schedule has of its own, or nil: that of a Crontab or of a parsed
// schedule, or the field Location of what robfig/cron and its forks parse. time.Local stands for the zone
// of the caller.
func zoneOf(s Schedule) *time.Location {
	if p, ok := s.(parsed); ok {
		return unlessLocal(p.Location())
	}
	if c, ok := s.(Crontab); ok {
		if c.Zone != nil {
			return c.Zone
		}
		if zone := zoneIn(c.Text); zone != nil {
			return zone
		}
		return zoneOf(c.Schedule)
	}
	v := reflect.ValueOf(s)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	field := v.FieldByName("Location")
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	zone, _ := field.Interface().(*time.Location)
	return unlessLocal(zone)
}

// unlessLocal returns a zone, or nil for time.Local, which is another one on each machine.
func unlessLocal(zone *time.Location) *time.Location {
	if zone == time.Local {
		return nil
	}
	return zone
}

// zoneIn returns the zone with which a crontab's text begins, or nil.
func zoneIn(text string) *time.Location {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	for _, name := range []string{"CRON_TZ=", "TZ="} {
		if name, ok := strings.CutPrefix(first, name); ok {
			if zone, err := time.LoadLocation(name); err == nil {
				return zone
			}
		}
	}
	return nil
}
