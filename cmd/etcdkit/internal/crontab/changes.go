package crontab

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/ticks"
)

// Change is a change of the clock of a zone, with the fire times of a schedule around it.
type Change struct {
	At    time.Time     // in the zone of the schedule, after the change
	By    time.Duration // what the clock was set forward by; negative if back
	Fires []time.Time   // within around before and after it
}

// around is how much before and after a change of the clock is shown, and year is for how long changes are looked for.
const (
	around = 3 * time.Hour
	year   = 366 * 24 * time.Hour
)

// Changes returns the changes of the clock in the year after an instant, with the fire times around them.
func (s Schedule) Changes(from time.Time) (all []Change) {
	zone := s.Location()
	at := from.In(zone)
	for {
		_, before := at.Zone()
		_, next := ticks.Offset(at)
		if next.IsZero() || next.Sub(from) > year {
			return all
		}
		at = next.In(zone)
		_, after := at.Zone()
		c := Change{At: at, By: time.Duration(after-before) * time.Second}
		for fire := s.Next(at.Add(-around)); !fire.IsZero() && fire.Before(at.Add(around)); fire = s.Next(fire) {
			c.Fires = append(c.Fires, fire)
		}
		all = append(all, c)
	}
}
