//go:build !linux

package history

import "time"

var start = time.Now()

// Now reads the host clock, in nanoseconds. Here it is the wall clock at the
// start of the process plus monotonic time: histories of several processes merge
// only as exactly as the wall clock is steady.
func Now() int64 { return start.UnixNano() + int64(time.Since(start)) }
