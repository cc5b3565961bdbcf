package concurrency

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
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

// slotPatience bounds how long a call waits for a slot that is about to be freed: one
// round trip where etcd answers.
const slotPatience = commit.CallTimeout

// takeSlot reserves a slot of the gate. If the session has as many as it may only because
// requests that have ended are still being removed, it waits until one of them is. It
// returns ErrTooMany if that does not help, or takes too long, or ctx's error.
func (e *epoch) takeSlot(ctx context.Context, g *gate) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if most := e.sess.opts.MaxPermits; e.used+e.waits >= most {
		if e.used-len(e.going)+e.waits >= most {
			return 0, fmt.Errorf("%w: %d are live (SessionOptions.MaxPermits)", ErrTooMany, most)
		}
		if err := e.awaitSlot(ctx); err != nil {
			return 0, err
		}
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

// awaitSlot waits until a slot is free for this call. The epoch is locked, but not meanwhile.
func (e *epoch) awaitSlot(ctx context.Context) (err error) {
	ready := make(chan struct{})
	e.ready = append(e.ready, ready)
	e.waits++
	e.mu.Unlock()
	t := time.NewTimer(slotPatience)
	defer t.Stop()
	select {
	case <-ready:
	case <-t.C:
		err = fmt.Errorf("%w: etcd has not confirmed for %v that requests that have ended are removed (SessionOptions.MaxPermits)", ErrTooMany, slotPatience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.mu.Lock()
	e.waits--
	i := slices.Index(e.ready, ready)
	if i < 0 { // a slot is free for this call, even if its wait has ended at the same moment
		return nil
	}
	e.ready = slices.Delete(e.ready, i, i+1)
	return err
}

// slotFreed counts one slot less, and lets the call go on that has waited longest for one.
// The epoch is locked.
func (e *epoch) slotFreed() {
	e.used--
	if len(e.ready) > 0 {
		close(e.ready[0])
		e.ready = e.ready[1:]
	}
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
		e.slotFreed()
	}
}

// wasteSlot gives up the slot of a claim whose name is taken by a foreign key.
func (e *epoch) wasteSlot(c *claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.freed = true
	e.unname(c)
	e.slotFreed()
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
