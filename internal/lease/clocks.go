package lease

import "time"

// reading is what the clocks of this machine show at one moment.
type reading struct {
	time.Time // wall clock and monotonic clock
	// boot is the time since the machine was started, suspensions included; 0 where no
	// clock shows it.
	boot time.Duration
}

// add returns the reading that is due after d.
func (r reading) add(d time.Duration) reading {
	r.Time = r.Time.Add(d)
	if r.boot != 0 {
		r.boot += d
	}
	return r
}

// clocks reads the machine's clocks. In a bubble of testing/synctest, whose time is not
// that of the machine and has no monotonic reading, boot is 0.
func clocks() reading {
	r := reading{Time: time.Now()}
	if r.Time != r.Round(0) {
		r.boot = sinceBoot()
	}
	return r
}

// passed reports whether a deadline has come by any of the clocks. The monotonic clock
// stands still while a machine is suspended. The wall clock does not, but it may be set
// back; if it is set forward, trust only ends early. The time since boot has neither
// weakness, but only Linux has it.
func passed(deadline, now reading) bool {
	return !now.Before(deadline.Time) ||
		!now.Round(0).Before(deadline.Round(0)) ||
		now.boot >= deadline.boot && deadline.boot != 0
}
