package schedlock

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Processes claim one after the other, in an order on which they all agree, so that usually one Txn
// decides. This only saves load: a process that does not know the others, or that has another order,
// costs a Txn that has no effect.
const (
	step    = 10 * time.Millisecond // between two processes: longer than a Txn and its event take
	longest = time.Second
	spread  = 5 * step // for all processes together that are not known to run the job

	// If many jobs are due at once, etcd is slower than the steps. So each process has few claims
	// in flight, and those for which it is first in the order come first. Before it comes to the
	// others, it has received the events of their claims.
	mostTurns = 4
	hung      = time.Second // after which a claim gives up its turn
)

// score is the rank of a process for a tick, by rendezvous hashing: if other processes join or
// leave, the order of the rest does not change.
func score(lease int64, key string) uint64 {
	h := fnv.New64a()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(lease)) //nolint:gosec // leases use all bits
	_, _ = h.Write([]byte(key))
	_, _ = h.Write(b[:])
	x := h.Sum64() // FNV alone mixes its last bytes badly
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// before returns the number of other processes that come before a process.
func before(own int64, others []int64, key string) (n time.Duration) {
	mine := score(own, key)
	for _, o := range others {
		if s := score(o, key); o != own && (s > mine || s == mine && o > own) {
			n++
		}
	}
	return n
}

// delay returns how long a process waits for those before it. Each process that is known to run the
// job has a step. The others may not run it at all, so they share a time that does not grow with
// their number. A process becomes known when it claims a tick, and the first in the order claims;
// so after a while all processes that run the job are known.
func delay(own int64, runners, others []int64, key string) time.Duration {
	share := min(step, spread/time.Duration(max(len(others), 1)))
	return min(before(own, runners, key)*step, longest) + before(own, others, key)*share //nolint:durationcheck // before counts
}
