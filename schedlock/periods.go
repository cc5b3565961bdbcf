package schedlock

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/ticks"
)

// Periods is the schedule whose fire times are the multiples of a period since the Unix epoch: the
// same in all processes. A Job takes it in place of a schedule that counts from the time at which
// it is asked, such as @every:
//
//	job, err := lk.Job("sweep", schedlock.Periods(5*time.Minute), sweep)
//
// The period is a whole number of milliseconds.
type Periods time.Duration

// Next returns the first fire time after t, in the location of t, or the zero time if the period
// is below a millisecond.
func (p Periods) Next(t time.Time) time.Time {
	if time.Duration(p) < ticks.Smallest {
		return time.Time{}
	}
	return p.at(t).Add(time.Duration(p)).In(t.Location())
}

// at returns the latest fire time up to t.
func (p Periods) at(t time.Time) time.Time { return ticks.At(time.Duration(p), t) }
