//go:build !linux

package guard

import (
	"context"
	"errors"
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
