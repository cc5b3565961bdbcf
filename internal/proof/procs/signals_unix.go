//go:build unix

package procs

import (
	"os"
	"syscall"
)

// Stop stops a process until it is continued. The error is that of the
// system, and errors.ErrUnsupported where there is no such thing.
func Stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Continue continues a process that was stopped.
func Continue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
