//go:build unix

package main

import (
	"os"
	"syscall"
)

// canPause tells whether a process can be stopped and continued here.
const canPause = true

func stopProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
