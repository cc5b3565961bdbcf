package embedtest

import (
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

// need returns the disk space in bytes that a member with its data in dir needs to start.
func need(dir string) int64 {
	segments := int64(2)
	if _, err := os.Stat(filepath.Join(dir, "member", "wal")); err == nil {
		segments = 1 // the current one exists
	}
	return segments*wal.SegmentSizeBytes + baseSize
}

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }
