package idempotency

import "sync"

// flight is one key on which this process works or waits: the calls of this process for
// one key ask etcd once.
type flight struct {
	print []byte
	// busy is closed when the request is known to be in progress, with that
	// fingerprint, here or elsewhere.
	busy chan struct{}
	// done is closed when the flight has ended. outcome is set before, if there is one.
	done    chan struct{}
	outcome *Recorded

	work, land sync.Once
}

// join returns the flight of a key, and whether it is the caller's to lead.
func (s *Store) join(ref string, print []byte) (f *flight, lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[ref]; f != nil {
		return f, false
	}
	f = &flight{print: print, busy: make(chan struct{}), done: make(chan struct{})}
	s.flights[ref] = f
	return f, true
}

func (f *flight) works() { f.work.Do(func() { close(f.busy) }) }

// landed ends a flight, with an outcome if it is known.
func (s *Store) landed(ref string, f *flight, outcome *Recorded) {
	f.land.Do(func() {
		s.mu.Lock()
		delete(s.flights, ref)
		s.mu.Unlock()
		f.outcome = outcome
		close(f.done)
	})
}
