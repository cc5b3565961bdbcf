package idempotency

import "sync"

// flight is the calls of this process for one request that is not finished. One of them leads: it
// asks etcd, and has the attempt; the others follow it.
type flight struct {
	print prints
	// busy is closed when an attempt at the request is known to be in progress, in any process.
	// lease is set before.
	busy  chan struct{}
	lease int64 // of the attempt's session, as it was read first; 0 in this process
	// here is closed when an attempt is in progress in this process. number is set before.
	here   chan struct{}
	number int // of the attempt
	// rechecks asks the leader to read whether the other process's attempt has ended.
	rechecks chan struct{}
	// done is closed when the flight has ended. outcome is set before, if there is one, and seen, if it has led to no
	// attempt and the key has a record.
	done    chan struct{}
	outcome *Outcome
	seen    bool

	onceBusy, onceHere sync.Once
}

// flights are the flights of a Store, by ref. It is safe for concurrent use.
type flights struct {
	mu sync.Mutex
	of map[string]*flight
}

// join returns the flight of a key, and whether the caller leads it.
func (s *flights) join(ref string, print prints) (f *flight, lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.of[ref]; f != nil {
		return f, false
	}
	f = &flight{
		print: print, busy: make(chan struct{}), here: make(chan struct{}), rechecks: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.of[ref] = f
	return f, true
}

// markBusy records that an attempt is in progress, on that lease if it is in another process.
func (f *flight) markBusy(lease int64) { f.onceBusy.Do(func() { f.lease = lease; close(f.busy) }) }

// markHere records that an attempt is in progress in this process.
func (f *flight) markHere(number int) {
	f.onceHere.Do(func() { f.number = number; close(f.here) })
	f.markBusy(0)
}

func (f *flight) isHere() bool {
	select {
	case <-f.here:
		return true
	default:
		return false
	}
}

// recheck asks the leader to read the request again.
func (f *flight) recheck() {
	select {
	case f.rechecks <- struct{}{}:
	default:
	}
}

// end ends a flight, with the outcome if there is one, unless it has ended.
func (s *flights) end(ref string, f *flight, outcome *Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[ref] == f {
		delete(s.of, ref)
		f.outcome = outcome
		close(f.done)
	}
}
