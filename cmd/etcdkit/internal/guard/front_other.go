//go:build !linux

package guard

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Guarded is a command that runs under a guard.
type Guarded struct{}

var errSystem = errors.New("this system has no way to find and end every process that a command starts (Linux has: subreapers and pidfds), so etcdkit run does not run here; etcdkit hold and release do")

// Supported returns an error: only Linux has what a guard needs.
func Supported() error { return errSystem }

// Start returns an error.
func Start(context.Context, Command, time.Time, func() error) (*Guarded, error) {
	return nil, errSystem
}

// Remote is a command whose front process is a child of this one.
type Remote struct{}

// StartRemote returns an error.
func StartRemote(Command, time.Time, *os.File) (*Remote, error) { return nil, errSystem }

// Events returns what happens to the command.
func (r *Remote) Events() <-chan Event { return nil }

// Trust moves the deadline on.
func (r *Remote) Trust(time.Time) {}

// Stop has the command end.
func (r *Remote) Stop() {}

// Front is the body of a front process.
func Front([]string) int { return 1 }

// Main is the body of a guard.
func Main([]string) int { return 1 }

// Events returns what happens to the command.
func (g *Guarded) Events() <-chan Event { return nil }

// Trust moves the deadline on.
func (g *Guarded) Trust(time.Time) {}

// Stop has the command end.
func (g *Guarded) Stop() {}

// Signal passes a signal on to the command.
func (g *Guarded) Signal(syscall.Signal) {}

// WriteInBackground changes nothing: a process without a command may stop.
func WriteInBackground() {}
