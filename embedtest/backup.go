package embedtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Backup is a copy of a cluster's data as of one moment.
type Backup struct {
	cluster *Cluster
	dir     string // one folder per member
}

// Backup stops all members in good order, copies their data and starts them again.
// It returns the errors of Restart, that of a copy that failed, and ErrExternal.
func (c *Cluster) Backup(ctx context.Context) (*Backup, error) {
	if err := c.ownServer(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.dir, "backup-")
	if err != nil {
		return nil, fmt.Errorf("embedtest: backup: %w", err)
	}
	b := &Backup{cluster: c, dir: dir}
	for _, m := range c.members {
		m.stop(true)
	}
	for _, m := range c.members {
		if err := os.CopyFS(filepath.Join(dir, m.name), os.DirFS(m.dir)); err != nil {
			return nil, fmt.Errorf("embedtest: backup: %w", err)
		}
	}
	return b, c.restartAll(ctx)
}

// Restore takes the cluster's history back to a backup of it: all members lose their
// data, get those of the backup and start again, on the same addresses. Keys, leases
// and revisions that came later have never been, and revisions are given out a second
// time, as after a snapshot was restored without raising the revision. A backup can be
// restored more than once. It returns the errors of Restart and of a copy that failed,
// ErrExternal, and an error for a backup of another cluster.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	if b == nil || b.cluster != c {
		return fmt.Errorf("embedtest: restore: it is no backup of this cluster")
	}
	for _, m := range c.members {
		m.stop(true)
	}
	for _, m := range c.members {
		err := os.RemoveAll(m.dir)
		if err == nil {
			err = os.CopyFS(m.dir, os.DirFS(filepath.Join(b.dir, m.name)))
		}
		if err != nil {
			return fmt.Errorf("embedtest: restore: %w", err)
		}
	}
	return c.restartAll(ctx)
}

func (c *Cluster) restartAll(ctx context.Context) error {
	all := make([]int, len(c.members))
	for i := range all {
		all[i] = i
	}
	return c.Restart(ctx, all...)
}
