package hostclock

import (
	"syscall"
	"unsafe"
)

// Name is the name of the clock.
const Name = "CLOCK_MONOTONIC"

// Now returns the time in nanoseconds. The clock is the same for all processes of the host,
// advances while a process is stopped, and is never set.
func Now() int64 {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}
