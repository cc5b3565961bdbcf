//go:build unix

package child

import "syscall"

// CanPause tells whether a process can be stopped and continued here.
const CanPause = true

// Stop stops the process. It returns an error if it has ended.
func (p *Process) Stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets it go on. It returns an error if it has ended.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
