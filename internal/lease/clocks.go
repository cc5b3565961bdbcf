package lease

import "time"

// Moment is what the clocks of this machine show at one moment. The zero Moment is long past.
type Moment struct {
	time.Time // wall clock and monotonic clock
	// Boot is the time since the machine was started, suspensions included; 0 where no
	// clock shows it.
	Boot time.Duration
}

// Now reads the machine's clocks. In a bubble of testing/synctest, whose time is not that of
// the machine and has no monotonic reading, Boot is 0.
func Now() Moment {
	m := Moment{Time: time.Now()}
	if !m.single() {
		m.Boot = sinceBoot()
	}
	return m
}

// single reports whether one clock shows m, that of a bubble: it is that of the timers, too.
func (m Moment) single() bool { return m.Boot == 0 && m.Time == m.Round(0) }

// Age returns the time between m and now, by the clock that shows most of it: see passed.
func (m Moment) Age(now Moment) time.Duration {
	age := max(now.Sub(m.Time), now.Round(0).Sub(m.Round(0)))
	if m.Boot != 0 && now.Boot != 0 {
		age = max(age, now.Boot-m.Boot)
	}
	return age
}

// add returns what the clocks show after d.
func (m Moment) add(d time.Duration) Moment {
	m.Time = m.Time.Add(d)
	if m.Boot != 0 {
		m.Boot += d
	}
	return m
}

// passed reports whether a deadline has passed by any of the clocks. The monotonic clock
// stops while a machine is suspended. The wall clock does not, but it may be set back; if it
// is set forward, trust only ends early. The time since boot has neither
// weakness, but only Linux has it.
func passed(deadline, now Moment) bool {
	return !now.Before(deadline.Time) ||
		!now.Round(0).Before(deadline.Round(0)) ||
		now.Boot >= deadline.Boot && deadline.Boot != 0
}
