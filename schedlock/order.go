package schedlock

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Processes try one after the other, in an order that they all agree on, so that one
// Txn usually decides. It is a matter of cost alone: whoever does not know of the others,
// or has another order, costs a Txn that fails.
const (
	step    = 10 * time.Millisecond // between one and the next: longer than a Txn and its event take
	longest = time.Second
	spread  = 5 * step // of all those together that are not known to run the job

	// When many jobs are due at once, etcd is slower than the steps. So each process has few
	// claims on their way, those of its own ticks first, as the steps have it: until it
	// comes to those of others, it has heard that they were claimed.
	turns = 4
	hung  = time.Second // after which a claim keeps no other from its turn
)

// score is a process's claim to a tick, by rendezvous hashing: when others come or go,
// the order of the rest stays as it is.
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

// before returns how many of the others come before a process.
func before(own int64, others []int64, key string) (n time.Duration) {
	mine := score(own, key)
	for _, o := range others {
		if s := score(o, key); o != own && (s > mine || s == mine && o > own) {
			n++
		}
	}
	return n
}

// delay is how long a process lets others go first. Those that are known to run the job have a
// step each. Those that are not may have nothing to do with it, so they share a time that does
// not grow with their number. A process that becomes known is one that has claimed a tick, and
// the first in the order claims; so after a while all that run the job are known.
func delay(own int64, runners, others []int64, key string) time.Duration {
	share := min(step, spread/time.Duration(max(len(others), 1)))
	return min(before(own, runners, key)*step, longest) + before(own, others, key)*share
}
