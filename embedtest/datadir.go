package embedtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// dataDir is a temporary directory of this process. The process locks a file in it until it
// ends, so that a later process can detect and remove the directory of a dead one. A process
// ID would not do, because the system reuses IDs.
type dataDir struct {
	tmp     *os.Root // the parent, such as os.TempDir
	name    string
	root    *os.Root // tmp/name
	lock    *os.File
	removed bool // or left to a sweep
}

const (
	dataDirs = "embedtest-*" // for os.MkdirTemp and fs.Glob
	lockFile = "embedtest.lock"
)

var errNotOurs = errors.New("the directory belongs to another process")

var sweepOnce sync.Once

// newDataDir creates a directory below os.TempDir. The first call in a process first removes
// the directories of dead processes.
func newDataDir() (*dataDir, error) {
	sweepOnce.Do(func() { sweepDataDirs(os.TempDir()) })
	return newDataDirIn(os.TempDir())
}

func newDataDirIn(tmp string) (*dataDir, error) {
	for {
		path, err := os.MkdirTemp(tmp, dataDirs)
		if err != nil {
			return nil, fmt.Errorf("embedtest: create data directory: %w", err)
		}
		// The sweep of another process may remove the directory before it is locked.
		d, err := lockDataDir(tmp, filepath.Base(path), os.O_CREATE)
		if err == nil || !errors.Is(err, errNotOurs) && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
}

// sweepDataDirs removes the directories below tmp that no process has locked. Directories
// that it cannot open or remove belong to another user and stay.
func sweepDataDirs(tmp string) {
	names, err := fs.Glob(os.DirFS(tmp), dataDirs)
	if err != nil {
		return
	}
	for _, name := range names {
		if d, err := lockDataDir(tmp, name, 0); err == nil {
			_ = d.remove()
		}
	}
}

// lockDataDir opens tmp/name and locks the file in it; os.O_CREATE creates the file. It
// returns errNotOurs if another process holds the lock. os.Root follows no link that leads
// out of tmp, to which other users may write too.
func lockDataDir(tmp, name string, create int) (_ *dataDir, err error) {
	d := &dataDir{name: name}
	defer func() {
		if err != nil {
			d.close()
			err = fmt.Errorf("embedtest: lock data directory: %w", err)
		}
	}()
	if d.tmp, err = os.OpenRoot(tmp); err != nil {
		return nil, err
	}
	if d.root, err = d.tmp.OpenRoot(name); err != nil {
		return nil, err
	}
	if d.lock, err = d.root.OpenFile(lockFile, os.O_RDWR|create, 0o600); err != nil {
		return nil, err
	}
	if err = tryLock(d.lock); err != nil && !errors.Is(err, errNotOurs) && create != 0 {
		_ = d.lock.Close() // The system has no locks. No sweep removes a directory without the file.
		return d, d.root.Remove(lockFile)
	} else if err != nil {
		return nil, err
	}
	// A sweep may have removed the file between the open and the lock.
	locked, err := d.lock.Stat()
	if err != nil {
		return nil, err
	}
	present, err := d.root.Stat(lockFile)
	if err != nil {
		return nil, err
	}
	if !os.SameFile(locked, present) {
		return nil, errNotOurs
	}
	return d, nil
}

func (d *dataDir) path() string { return filepath.Join(d.tmp.Name(), d.name) }

// remove removes the directory, with the lock file last, so that a sweep can complete the
// removal if the process dies during it. The file is removed while it is locked: newDataDir, which
// may be waiting for the lock, sees then that it is gone. On Windows a file must be closed before its
// removal. Further calls do nothing.
func (d *dataDir) remove() error {
	if d.removed {
		return nil
	}
	d.removed = true
	defer d.close()
	entries, err := fs.ReadDir(d.root.FS(), ".")
	for _, e := range entries {
		if e.Name() != lockFile {
			err = errors.Join(err, d.root.RemoveAll(e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("embedtest: remove data directory: %w", err)
	}
	if d.root.Remove(lockFile) != nil {
		_ = d.lock.Close()
		_ = d.root.Remove(lockFile)
	}
	_ = d.lock.Close()
	_ = d.root.Close()
	if err := d.tmp.Remove(d.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("embedtest: remove data directory: %w", err)
	}
	return nil
}

// close closes the files and the lock. If the directory still exists, the next sweep removes
// it.
func (d *dataDir) close() {
	_ = d.lock.Close()
	if d.root != nil {
		_ = d.root.Close()
	}
	if d.tmp != nil {
		_ = d.tmp.Close()
	}
}
