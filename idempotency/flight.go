package idempotency

import "sync"

// flight is one key on which this process works or waits: the calls of this process for
// one key ask etcd once.
type flight struct {
	print prints
	// busy is closed when the request is known to be in progress, with that
	// fingerprint, here or elsewhere. lease is set before.
	busy  chan struct{}
	lease int64 // of the session that works on it elsewhere, as it was read first
	// here is closed when it is this process that works on it. number is set before.
	here   chan struct{}
	number int // of the attempt
	// look has who leads ask etcd whether the other one still works on it.
	look chan struct{}
	// done is closed when the flight has ended. outcome is set before, if there is one.
	done    chan struct{}
	outcome *Outcome

	work, own, land sync.Once
}

// join returns the flight of a key, and whether it is the caller's to lead.
func (s *Store) join(ref string, print prints) (f *flight, lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[ref]; f != nil {
		return f, false
	}
	f = &flight{
		print: print, busy: make(chan struct{}), here: make(chan struct{}), look: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.flights[ref] = f
	return f, true
}

// works reports that the request is in progress, on that lease if it is elsewhere.
func (f *flight) works(lease int64) { f.work.Do(func() { f.lease = lease; close(f.busy) }) }

// begun tells that an attempt goes on here.
func (f *flight) begun(number int) {
	f.own.Do(func() { f.number = number; close(f.here) })
	f.works(0)
}

func (f *flight) isHere() bool {
	select {
	case <-f.here:
		return true
	default:
		return false
	}
}

// stir has who leads look again.
func (f *flight) stir() {
	select {
	case f.look <- struct{}{}:
	default:
	}
}

// landed ends a flight, with an outcome if it is known.
func (s *Store) landed(ref string, f *flight, outcome *Outcome) {
	f.land.Do(func() {
		s.mu.Lock()
		delete(s.flights, ref)
		s.mu.Unlock()
		f.outcome = outcome
		close(f.done)
	})
}
