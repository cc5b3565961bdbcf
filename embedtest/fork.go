package embedtest

import "syscall"

// waitForForks returns when every process that this one was about to start has started. Until then such
// a process has copies of this one's files, and with them the locks of those that were closed since it
// began: etcd would find the log of a stopped member locked.
func waitForForks() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}
