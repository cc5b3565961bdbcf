package procs

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent makes the kernel kill the child when we are gone, by whatever
// end; a stopped child would otherwise stay for ever. It is the end of the thread
// that counts; Go ends none but those of goroutines that end locked to one.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isStopped reports whether all threads of a process have been stopped.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // gone
	}
	// pid (name) state …; the name may hold anything.
	i := bytes.LastIndexByte(stat, ')')
	return i >= 0 && bytes.HasPrefix(stat[i:], []byte(") T"))
}
