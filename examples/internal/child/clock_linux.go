package child

import (
	"syscall"
	"unsafe"
)

// ClockName says what Clock reads.
const ClockName = "CLOCK_MONOTONIC"

// Clock reads, in nanoseconds, the one clock that all processes of this host
// share and that nobody sets: CLOCK_MONOTONIC. It goes on while a process is
// stopped.
func Clock() int64 {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("clock_gettime: " + errno.Error())
	}
	return ts.Nano()
}
