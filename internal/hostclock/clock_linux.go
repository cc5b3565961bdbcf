package hostclock

import "golang.org/x/sys/unix"

// Name is the name of the clock.
const Name = "CLOCK_MONOTONIC"

// Now returns the time in nanoseconds. The clock is the same for all processes of the host,
// advances while a process is stopped, and is never set.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock_gettime: " + err.Error())
	}
	return ts.Nano()
}
