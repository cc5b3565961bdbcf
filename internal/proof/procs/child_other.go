//go:build !linux

package procs

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

func standsStill(int) bool { return true }
