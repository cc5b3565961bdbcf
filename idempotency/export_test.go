package idempotency

// Flights returns on how many keys a Store works or waits.
func Flights(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights)
}
