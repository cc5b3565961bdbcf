package idempotency

import (
	"errors"
	"sync/atomic"
	"time"
)

// Outcomes returns how many keys a Store counts on the leases of outcomes that it was granted.
func Outcomes(s *Store) (n int) {
	s.retention.mu.Lock()
	defer s.retention.mu.Unlock()
	for _, p := range s.retention.pools {
		p.mu.Lock()
		for _, l := range p.granted {
			n += l.used
		}
		p.mu.Unlock()
	}
	return n
}

// Flights returns on how many keys a Store works or waits.
func Flights(s *Store) int {
	s.flights.mu.Lock()
	defer s.flights.mu.Unlock()
	return len(s.flights.of)
}

// Withdrawals returns how many claims the Stores of a session are taking back.
func Withdrawals(s *Store) (n int) {
	s.withdrawals.all.Range(func(any, any) bool { n++; return true })
	return n
}

// Cached returns how many outcomes a Store keeps at hand.
func Cached(s *Store) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return s.cache.order.Len()
}

// Saw has a Store know of a revision, as after an answer of etcd's.
func Saw(s *Store, revision int64) { s.reader.saw(revision, now()) }

// GatherUntilSent has reads of a Store wait for company however long that takes.
func GatherUntilSent(s *Store) {
	s.reader.serial.queue.Wait, s.reader.linear.queue.Wait = time.Hour, time.Hour
}

// Gathered returns how many reads wait for company.
func Gathered(s *Store) int { return s.reader.serial.queue.Waiting() + s.reader.linear.queue.Waiting() }

// Known returns the revision below which a Store believes no member.
func Known(s *Store) int64 {
	known, _ := s.reader.floor()
	return known
}

// Pausable returns what has an attempt find its session's lease past its deadline, as one
// does that runs on after a pause of its process before any timer has fired.
func Pausable(a *Attempt) (pause func()) {
	e := &pausable{epoch: a.epoch}
	a.epoch = e
	a.life.Begin(&a.ctx, e, (*ending)(a))
	return func() { e.paused.Store(true) }
}

type pausable struct {
	epoch
	paused atomic.Bool
}

func (e *pausable) Valid() bool { return !e.paused.Load() && e.epoch.Valid() }

func (e *pausable) Why() (cause, reason error) { return ErrLost, errors.New("paused") }

// ForgetCounts has a Store count the records of each scope again.
func ForgetCounts(s *Store) {
	s.scopes.mu.Lock()
	defer s.scopes.mu.Unlock()
	for _, t := range s.scopes.of {
		t.at = moment{}
	}
}
