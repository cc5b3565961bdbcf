//go:build unix

package work

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that this process has used so far.
func processorTime() (used time.Duration, known bool) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
