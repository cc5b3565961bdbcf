//go:build unix && !aix && !solaris

package embedtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The lock of a directory that is being removed is not free before its file is gone: a process that has
// opened the file and gets the lock sees that the directory is not its own.
func TestRemovalHoldsTheLock(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	for range 200 {
		d, err := newDataDirIn(tmp)
		require.NoError(t, err)
		file := filepath.Join(d.path(), lockFile)
		f, err := os.Open(file)
		require.NoError(t, err)
		held := make(chan error, 1)
		go func() {
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
				held <- err
				return
			}
			_, err := os.Stat(file)
			held <- err
		}()
		require.NoError(t, d.remove())
		assert.ErrorIs(t, <-held, fs.ErrNotExist)
		require.NoError(t, f.Close())
	}
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}
