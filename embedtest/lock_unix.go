//go:build unix && !aix && !solaris

package embedtest

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks f until it is closed or the process ends. It returns errNotOurs if the
// file is locked already, by this process or another.
func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errNotOurs
		}
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
