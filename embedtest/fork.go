package embedtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// lockBound bounds how long a start waits for the locks of a member's log.
const lockBound = 2 * time.Second

// waitForLocks returns when no file of the member's log is locked. The locks of a stopped member can last for
// a moment: a process that this one has just started has copies of its files until it executes its program,
// and etcd does not wait for a lock. Such a process releases them soon, and takes none.
func (m *member) waitForLocks() {
	for end := time.Now().Add(lockBound); m.logIsLocked() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (m *member) logIsLocked() bool {
	files, _ := filepath.Glob(filepath.Join(m.dir, "member", "wal", "*.wal"))
	syscall.ForkLock.RLock() // no process gets copies of the files that are opened here
	defer syscall.ForkLock.RUnlock()
	for _, name := range files {
		f, err := fileutil.TryLockFile(name, os.O_WRONLY, fileutil.PrivateFileMode)
		if errors.Is(err, fileutil.ErrLocked) {
			return true
		}
		if err == nil {
			_ = f.Close()
		}
	}
	return false
}
