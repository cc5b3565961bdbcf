package engine

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// slotPatience bounds how long a call waits for a slot that is about to be freed: one
// round trip where etcd answers.
const slotPatience = commit.CallTimeout

// slots assigns the numbers that distinguish a session's requests in one queue, and
// records under which keys they are written. etcd's index keeps each deleted key until
// compaction, so keys must be few: the lowest free number is taken. A number is free again
// only when it is certain that its key is gone and cannot come back.
type slots struct {
	most int // how many may be in use, in all queues

	mu       sync.Mutex
	numbers  map[string]*big.Int // those in use, a bit for each, by the range of the queue
	used     int                 // in all queues, but for those that were wasted
	waits    int                 // calls that wait for a slot
	ready    []chan struct{}     // of those for which none is free yet, in order
	names    map[string]int      // keys of all requests, and by how many each is used
	deleting map[string]*Ticket  // those that are being removed, by their first key
}

func newSlots(most int) *slots {
	return &slots{most: most, numbers: map[string]*big.Int{}, names: map[string]int{}, deleting: map[string]*Ticket{}}
}

// TakeSlot reserves a slot of the queue with that range. If as many are in use as may be, only because requests
// that have ended are still being removed, it waits until one of them is. It returns
// ErrTooMany if that does not help, or takes too long, or ctx's error.
func (s *slots) TakeSlot(ctx context.Context, queue string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	awaited := false
	if s.used+s.waits >= s.most {
		if s.used-len(s.deleting)+s.waits >= s.most {
			return 0, fmt.Errorf("%w: %d are live (SessionOptions.MaxPermits)", ErrTooMany, s.most)
		}
		if err := s.await(ctx); err != nil {
			return 0, err
		}
		awaited = true
	}
	taken := s.numbers[queue]
	if taken == nil {
		taken = new(big.Int)
		s.numbers[queue] = taken
	}
	n := lowestClear(taken)
	if n > keyspace.MaxSlot {
		if awaited { // the slot is for the next call
			s.wake()
		}
		return 0, fmt.Errorf("%w: %d slots of this queue are taken", ErrTooMany, n)
	}
	taken.SetBit(taken, n, 1)
	s.used++
	return n, nil
}

// Spare returns how many requests more the session may have now, in all queues.
func Spare(s *Session) int {
	s.mu.Lock()
	e := s.current
	s.mu.Unlock()
	if e == nil {
		return s.opts.MaxPermits
	}
	return e.slots.spare()
}

func (s *slots) spare() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.most-s.used+len(s.deleting)-s.waits)
}

// await waits until a slot is free for this call. s.mu is held, but not meanwhile.
func (s *slots) await(ctx context.Context) (err error) {
	ready := make(chan struct{})
	s.ready = append(s.ready, ready)
	s.waits++
	s.mu.Unlock()
	t := time.NewTimer(slotPatience)
	defer t.Stop()
	select {
	case <-ready:
	case <-t.C:
		err = fmt.Errorf("%w: etcd has not confirmed for %v that requests that have ended are removed (SessionOptions.MaxPermits)", ErrTooMany, slotPatience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	s.waits--
	i := slices.Index(s.ready, ready)
	if i < 0 { // a slot is free for this call, even if its wait has ended at the same moment
		return nil
	}
	s.ready = slices.Delete(s.ready, i, i+1)
	return err
}

// name records a ticket's keys as the session's own, before they are written.
func (s *slots) name(t *Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range t.keys() {
		s.names[key]++
	}
}

// owns reports whether a key belongs to a request that is being written, exists or is being
// deleted.
func (s *slots) owns(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[key] > 0
}

// Deletes records that a ticket's key is being deleted.
func (s *slots) Deletes(t *Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.freed {
		s.deleting[t.Key] = t
	}
}

// deletesKey reports whether the key of a slot is being deleted.
func (s *slots) deletesKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, deleting := s.deleting[key]
	return deleting
}

// Leaving is a request that was being removed.
type Leaving struct {
	Key    string
	Next   []string // the keys that it may have in another queue, as in Stored
	Joined Joined   // likewise

	Gone <-chan struct{} // closed when its keys are certainly gone
}

// IsGone reports whether its keys are certainly gone.
func (l Leaving) IsGone() bool {
	select {
	case <-l.Gone:
		return true
	default:
		return false
	}
}

// Leaving returns the requests that are being removed, of those whose slots are of the queue with that range.
func (s *slots) Leaving(queue string) (all []Leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.deleting {
		if t.Queue != queue {
			continue
		}
		if t.gone == nil {
			t.gone = make(chan struct{})
		}
		all = append(all, Leaving{t.Key, t.Next, t.Joined, t.gone})
	}
	return all
}

// free frees the slot of a ticket whose key is certainly gone. It may be called more than
// once.
func (s *slots) free(t *Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.freed {
		return
	}
	delete(s.deleting, t.Key)
	taken := s.numbers[t.Queue]
	if taken.SetBit(taken, t.Number, 0).Sign() == 0 {
		delete(s.numbers, t.Queue)
	}
	s.end(t)
}

// waste gives up the slot of a ticket whose key is taken by a foreign one. Its number is
// never free again, but counts no more.
func (s *slots) waste(t *Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(t)
}

// end counts one slot less, and wakes the call that has waited longest for one. s.mu is
// held.
func (s *slots) end(t *Ticket) {
	t.freed = true
	if t.gone != nil {
		close(t.gone)
	}
	for _, key := range t.keys() {
		if s.names[key]--; s.names[key] == 0 {
			delete(s.names, key)
		}
	}
	s.used--
	s.wake()
}

// wake lets the call continue that has waited longest, since one slot is free for it. s.mu is
// held.
func (s *slots) wake() {
	if len(s.ready) > 0 {
		close(s.ready[0])
		s.ready = s.ready[1:]
	}
}

var one = big.NewInt(1)

// lowestClear returns the lowest bit that is not set: an addition of one carries up to it.
func lowestClear(set *big.Int) int { return int(new(big.Int).Add(set, one).TrailingZeroBits()) }
