//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

// whole leaves a command as it is: the end of its ctx ends its own process alone.
func whole(*exec.Cmd, syscall.Signal) {}

// memory returns the bytes that the descendants of this process have, which is not known here.
func memory() (bytes int64, known bool) { return 0, false }

// own returns the processor time of this process and its descendants, which is not known here.
func own() float64 { return 0 }

// busy returns the processor time of all processes, which is not known here.
func busy() float64 { return 0 }
