package lease

import "time"

// Moment is what the clocks of this machine show at one moment, for durations that decide what
// is still of use. The zero Moment is long past.
type Moment struct {
	time.Time
	// Boot is the time since the machine was started, suspensions included; 0 where no clock
	// shows it.
	Boot time.Duration
}

// Now reads the clocks.
func Now() Moment {
	r := clocks()
	return Moment{Time: r.Time, Boot: r.boot}
}

// Age returns how long before now m was, by the clock that says most: see passed.
func (m Moment) Age(now Moment) time.Duration {
	age := max(now.Sub(m.Time), now.Round(0).Sub(m.Round(0)))
	if m.Boot != 0 && now.Boot != 0 {
		age = max(age, now.Boot-m.Boot)
	}
	return age
}
