package embedtest

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// etcd reserves the disk space of two segments of its write-ahead log for each
// member, the present one and the next: 128 MB with its default of 64 MB. Each new
// segment costs milliseconds, so much smaller ones slow down tests that write large
// values.
//
// The size is a variable of the process that etcd reads without a lock. It is set
// here because nothing runs at the same time: setting it when the first member starts
// would be a race with an etcd that the program has started by itself.
func init() { wal.SegmentSizeBytes = 4_000_000 }

// spare is the space that a member needs beside its write-ahead log: an empty
// database and a snapshot, and some room for data.
const spare = 1_000_000

// need returns the disk space in bytes that a member needs to start.
func (m *member) need() int64 {
	segments := int64(2)
	if _, err := os.Stat(filepath.Join(m.dir, "member", "wal")); err == nil {
		segments = 1 // one is there
	}
	return segments*wal.SegmentSizeBytes + spare
}

// checkRoom returns an error if the data directory's file system has no room for
// these members. Where the space cannot be determined it returns nil.
func (c *Cluster) checkRoom(members ...*member) error {
	var need int64
	for _, m := range members {
		need += m.need()
	}
	free, known := freeSpace(c.dir)
	if !known || free >= need {
		return nil
	}
	place := "Options.Dir names the directory"
	if c.ownDir != nil {
		place = "set TMPDIR to a directory with more space"
	}
	count := "1 member"
	if len(members) != 1 {
		count = fmt.Sprintf("%d members", len(members))
	}
	return fmt.Errorf("embedtest: not enough disk space in %s: %.1f MB needed for %s, %.1f MB free; %s",
		c.dir, mega(need), count, mega(free), place)
}

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }
