package idempotency

import "time"

// Flights returns on how many keys a Store works or waits.
func Flights(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights)
}

// Cached returns how many outcomes a Store keeps at hand.
func Cached(s *Store) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return s.cache.order.Len()
}

// Saw has a Store know of a revision, as after an answer of etcd's.
func Saw(s *Store, revision int64) { s.saw(revision, time.Now()) }

// GatherUntilSent has reads of a Store wait for company however long that takes.
func GatherUntilSent(s *Store) { s.near.queue.Wait, s.far.queue.Wait = time.Hour, time.Hour }

// Gathered returns how many reads wait for company.
func Gathered(s *Store) int { return s.near.queue.Waiting() + s.far.queue.Waiting() }

// Known returns the revision below which a Store believes no member.
func Known(s *Store) int64 {
	known, _ := s.floor()
	return known
}
