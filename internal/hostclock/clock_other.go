//go:build !linux

package hostclock

import "time"

// Name is the name of the clock.
const Name = "wall clock"

var start = time.Now()

// Now returns the time in nanoseconds: the wall clock at the start of the process plus
// monotonic time. Events of several processes merge correctly only if the wall clock is not
// set while they run.
func Now() int64 { return start.UnixNano() + int64(time.Since(start)) }
