// Package hostclock reads one clock that all processes of a host share, so that events of
// several processes can be merged by time. Tests and examples use it; no product code does.
package hostclock

import "time"

// At returns the time of this clock that corresponds to t, at most a millisecond early. It
// returns 0 for the zero time.
func At(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	for range 10 {
		before := Now()
		at := before + int64(time.Until(t))
		if Now()-before < int64(time.Millisecond) {
			return at
		}
	}
	return Now() + int64(time.Until(t)) // the machine is too busy
}
