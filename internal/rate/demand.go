package rate

import "time"

// span is how long calls are counted for.
const span = 500 * time.Millisecond

// Demand counts the calls of one process. The zero Demand has seen none.
type Demand struct {
	since time.Time // when counting began
	calls int
	last  float64   // per second, before since
	used  time.Time // the last call
}

// Add counts a call.
func (d *Demand) Add(now time.Time) {
	d.turn(now)
	d.calls++
	d.used = now
}

// Touch has the process not be idle, without a call that counts.
func (d *Demand) Touch(now time.Time) { d.used = now }

// PerSecond returns how many calls per second there are: the greater one of the present span of half
// a second and the one before it.
func (d *Demand) PerSecond(now time.Time) float64 {
	d.turn(now)
	return max(d.last, float64(d.calls)/span.Seconds())
}

// Idle returns for how long there was no call.
func (d *Demand) Idle(now time.Time) time.Duration { return now.Sub(d.used) }

func (d *Demand) turn(now time.Time) {
	switch past := now.Sub(d.since); {
	case past < span:
	case past < 2*span:
		d.since, d.calls, d.last = now, 0, float64(d.calls)/past.Seconds()
	default:
		d.since, d.calls, d.last = now, 0, 0
	}
}
