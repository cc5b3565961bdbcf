package concurrency

import (
	"fmt"
	"math/bits"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// slots hands out the numbers that tell a session's requests in one queue apart,
// lowest first: etcd's index keeps every deleted name until compaction, so names
// must be few. A number is free again only when it is certain that its key is
// gone and cannot come back.
type slots []uint64

func (s *slots) take() (n int) {
	for i, word := range *s {
		if word != ^uint64(0) {
			bit := bits.TrailingZeros64(^word)
			(*s)[i] |= 1 << bit
			return i*64 + bit
		}
	}
	*s = append(*s, 1)
	return (len(*s) - 1) * 64
}

// free returns a number, and tells whether none is taken any more.
func (s *slots) free(n int) (idle bool) {
	(*s)[n/64] &^= 1 << (n % 64)
	for _, word := range *s {
		if word != 0 {
			return false
		}
	}
	return true
}

// takeSlot reserves a slot of the gate. It returns ErrTooMany if the session has
// as many as it may.
func (e *epoch) takeSlot(g *gate) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.used >= e.sess.opts.MaxPermits {
		return 0, fmt.Errorf("%w: %d are live", ErrTooMany, e.used)
	}
	s := e.slots[g.keys.Range]
	if s == nil {
		s = new(slots)
		e.slots[g.keys.Range] = s
	}
	n := s.take()
	if n > keyspace.MaxSlot {
		s.free(n)
		return 0, fmt.Errorf("%w: %d slots are taken in %q", ErrTooMany, n, g.name)
	}
	e.used++
	return n, nil
}

// freeSlot frees the slot of a claim whose key is certainly gone. It may be
// called more than once.
func (e *epoch) freeSlot(c *claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !c.freed {
		c.freed = true
		e.unname(c)
		delete(e.going, c.key)
		if e.slots[c.gate.keys.Range].free(c.slot.Number) {
			delete(e.slots, c.gate.keys.Range)
		}
		e.used--
	}
}

// wasteSlot gives up the slot of a claim whose name is taken by a foreign key.
func (e *epoch) wasteSlot(c *claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.freed = true
	e.unname(c)
	e.used--
}

// goes notes that a claim's key is being deleted.
func (e *epoch) goes(c *claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !c.freed {
		e.going[c.key] = struct{}{}
	}
}

// gone tells whether a request is one of this session's own that nobody holds or
// waits for any more: its lease is lost, or its key is being deleted.
func (e *epoch) gone(o owner) bool {
	if o.Slot.Lease != e.lease.ID() {
		e.sess.mu.Lock()
		defer e.sess.mu.Unlock()
		_, past := e.sess.past[o.Slot.Lease]
		return past
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, going := e.going[o.Key]
	return going
}
