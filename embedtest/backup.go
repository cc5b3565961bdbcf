package embedtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Backup is a copy of a cluster's data at one moment.
type Backup struct {
	cluster *Cluster
	dir     string // with one subdirectory per member
}

// Backup stops all members, copies their data and restarts them. It returns an error if the
// copy fails, the errors of Restart, and ErrExternal.
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

// Restore stops all members, replaces their data with those of the backup and restarts them
// on the same addresses. All later changes of keys and leases are lost, and etcd assigns
// their revisions a second time, as after the restore of a snapshot without a revision bump.
// A backup can be restored more than once. Restore returns an error for a backup of another
// cluster and if the copy fails, the errors of Restart, and ErrExternal.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	if b == nil || b.cluster != c {
		return fmt.Errorf("embedtest: restore: the backup is of another cluster")
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
