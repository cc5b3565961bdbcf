package embedtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// dataDir is a temporary directory of this process. A file in it is locked until the
// process ends, for whatever reason, so that a later process can remove what a dead one
// has left. It is a lock and not a process ID because IDs are used again.
type dataDir struct {
	tmp  *os.Root // the directory for temporary files
	name string
	root *os.Root // tmp/name
	lock *os.File
	gone bool // removed, or left to a sweep
}

const (
	dataDirs = "embedtest-*" // as os.MkdirTemp and fs.Glob have it
	lockFile = "embedtest.lock"
)

var errNotOurs = errors.New("the directory belongs to another process")

var sweepOnce sync.Once

// newDataDir makes a directory below os.TempDir. The first call in a process removes the
// directories of processes that have died.
func newDataDir() (*dataDir, error) {
	sweepOnce.Do(func() { sweepDataDirs(os.TempDir()) })
	return newDataDirIn(os.TempDir())
}

func newDataDirIn(tmp string) (*dataDir, error) {
	for {
		path, err := os.MkdirTemp(tmp, dataDirs)
		if err != nil {
			return nil, fmt.Errorf("embedtest: data directory: %w", err)
		}
		// A sweep of another process may come before the lock and remove the directory.
		d, err := lockDataDir(tmp, filepath.Base(path), os.O_CREATE)
		if err == nil || !errors.Is(err, errNotOurs) && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
}

// sweepDataDirs removes the directories below tmp that no process has locked. What it
// cannot open or remove stays: it belongs to another user.
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

// lockDataDir opens tmp/name and locks the file in it, which create makes. It returns
// errNotOurs if another process holds the lock. os.Root follows no link out of a tmp that
// other users write to as well.
func lockDataDir(tmp, name string, create int) (_ *dataDir, err error) {
	d := &dataDir{name: name}
	defer func() {
		if err != nil {
			d.close()
			err = fmt.Errorf("embedtest: lock the data directory: %w", err)
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
		_ = d.lock.Close() // Locks do not work here. Without the file, no sweep comes.
		return d, d.root.Remove(lockFile)
	} else if err != nil {
		return nil, err
	}
	// A sweep may have removed the file before it was locked here.
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

// remove removes the directory, and the lock last: if the process dies on the way, the
// next one finds it. Windows removes no file that is open. A second call does nothing.
func (d *dataDir) remove() error {
	if d.gone {
		return nil
	}
	d.gone = true
	defer d.close()
	entries, err := fs.ReadDir(d.root.FS(), ".")
	for _, e := range entries {
		if e.Name() != lockFile {
			err = errors.Join(err, d.root.RemoveAll(e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("embedtest: remove the data: %w", err)
	}
	_ = d.lock.Close()
	_ = d.root.Remove(lockFile)
	_ = d.root.Close()
	if err := d.tmp.Remove(d.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("embedtest: remove the data: %w", err)
	}
	return nil
}

// close leaves the directory to the next sweep, if it is still there.
func (d *dataDir) close() {
	_ = d.lock.Close()
	if d.root != nil {
		_ = d.root.Close()
	}
	if d.tmp != nil {
		_ = d.tmp.Close()
	}
}
