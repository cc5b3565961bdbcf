package embedtest

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// For each member, etcd allocates the disk space of two segments of its write-ahead log, the
// current one and the next: 128 MB with its default of 64 MB. A new segment costs
// milliseconds, so a much smaller size slows down tests that write large values.
//
// The size is a global variable that etcd reads without a lock. It is set in init, before
// any etcd runs. Setting it at the start of the first member would race with an etcd that the
// program itself has started.
func init() { wal.SegmentSizeBytes = 4_000_000 }

// baseSize is the disk space that a member needs besides its write-ahead log: for an empty
// database, a snapshot and some data.
const baseSize = 1_000_000

// need returns the disk space in bytes that a member needs to start.
func (m *member) need() int64 {
	segments := int64(2)
	if _, err := os.Stat(filepath.Join(m.dir, "member", "wal")); err == nil {
		segments = 1 // the current one exists
	}
	return segments*wal.SegmentSizeBytes + baseSize
}

// checkRoom returns an error if the file system of the data directory has too little space
// for these members. If the space is unknown, it returns nil.
func (c *Cluster) checkRoom(members ...*member) error {
	var need int64
	for _, m := range members {
		need += m.need()
	}
	free, known := freeSpace(c.dir)
	if !known || free >= need {
		return nil
	}
	place := "named by Options.Dir"
	if c.ownDir != nil {
		place = "set TMPDIR to a directory with more space"
	}
	count := "1 member"
	if len(members) != 1 {
		count = fmt.Sprintf("%d members", len(members))
	}
	return fmt.Errorf("embedtest: not enough disk space in %s: %.1f MB needed for %s, %.1f MB free (%s)",
		c.dir, mega(need), count, mega(free), place)
}

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }
