package history

import (
	"syscall"
	"unsafe"
)

// Now reads the host clock, in nanoseconds: CLOCK_MONOTONIC, which goes on while
// a process is stopped and is the same for all processes of a host.
func Now() int64 {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}
