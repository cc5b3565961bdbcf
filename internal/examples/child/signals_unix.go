//go:build unix

package child

import "syscall"

// CanPause reports whether this system can stop and continue a process.
const CanPause = true

// Stop stops the process (SIGSTOP). It returns an error if the process has ended.
func (p *Process) Stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue continues a stopped process. It returns an error if the process has ended.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
