package guard

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// foreground reports whether this process is in the foreground of its terminal.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// modes are those of the terminal, or nil. A shell restores them for a job that a signal has ended, and takes
// this process, which exits, for one that has done so itself.
type modes struct{ saved *unix.Termios }

func modesOfTerminal() modes {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return modes{}
	}
	defer func() { _ = tty.Close() }()
	saved, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		return modes{}
	}
	return modes{saved}
}

// restore sets the modes, unless another job is in the foreground of the terminal.
func (m modes) restore() {
	if m.saved == nil {
		return
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() && !errors.Is(unix.Kill(-group, 0), unix.ESRCH) { // the command may have had a group of its own
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		WriteInBackground()
		_ = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, m.saved)
	}()
	<-done
}

// WriteInBackground lets the calling goroutine write to a terminal whose foreground is another job's, under
// `stty tostop` as well: with SIGTTOU blocked, the kernel permits the write. Otherwise it stops the whole process
// group, with the command. The goroutine is locked to its thread, which ends with it.
func WriteInBackground() {
	runtime.LockOSThread()
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGTTOU - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
}
