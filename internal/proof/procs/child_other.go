//go:build !linux

package procs

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

func isStopped(int) bool { return true }
