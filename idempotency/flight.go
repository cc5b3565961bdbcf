package idempotency

import "sync"

// flight is the calls of this process for one request that is not finished. One of them leads: it
// asks etcd, and has the attempt; the others follow it.
type flight struct {
	payload, also []byte // the fingerprints
	old           []prints

	mu     sync.Mutex
	known  bool  // etcd has answered the leader
	busy   bool  // an attempt at the request is known to be in progress, in any process
	lease  int64 // then: of the attempt's session, as it was read last; 0 in this process
	here   bool  // an attempt is in progress in this process
	number int   // then: of the attempt
	done   bool  // the flight has ended
	// Then: the outcome, if there is one; and seen, if it has led to no attempt and the key has a record.
	outcome *Outcome
	seen    bool

	signals  *signals      // nil until a call follows
	rechecks chan struct{} // nil until the leader waits for another process's attempt, or is asked to look
}

// signals are closed when the fields of their names are true; found, and replaced, when etcd has answered the leader, and
// each time that it finds an attempt in progress, which may be another one than before. Most flights need none.
type signals struct{ found, here, done chan struct{} }

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
	f = &flight{payload: print.payload, also: print.also, old: print.old}
	s.of[ref] = f
	return f, true
}

func (f *flight) prints() prints { return prints{payload: f.payload, also: f.also, old: f.old} }

// followed returns the signals, for a call that follows; whether etcd has answered the leader; and whether an attempt is in
// progress, and in this process.
func (f *flight) followed() (_ signals, known, busy, here bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signals == nil {
		f.signals = &signals{signalOf(false), signalOf(f.here), signalOf(f.done)}
	}
	return *f.signals, f.known, f.busy, f.here
}

func signalOf(is bool) chan struct{} {
	c := make(chan struct{})
	if is {
		close(c)
	}
	return c
}

// markKnown records that etcd has answered the leader.
func (f *flight) markKnown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		f.known = true
		f.signalFound()
	}
}

// signalFound signals what the leader has found. The caller holds mu.
func (f *flight) signalFound() {
	if f.signals != nil {
		close(f.signals.found)
		f.signals.found = make(chan struct{})
	}
}

// markBusy records that an attempt is in progress, of the session with that lease if it is in another process. It is called each
// time that one is found.
func (f *flight) markBusy(lease int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isBusy(lease)
}

// isBusy is markBusy. The caller holds mu.
func (f *flight) isBusy(lease int64) {
	f.known, f.busy, f.lease = true, true, lease
	f.signalFound()
}

// markHere records that an attempt is in progress in this process.
func (f *flight) markHere(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.here {
		f.here, f.number = true, number
		if f.signals != nil {
			close(f.signals.here)
		}
	}
	f.isBusy(0)
}

// attempt returns the number of the attempt in progress and true if it is in this process, and otherwise its lease.
func (f *flight) attempt() (lease int64, number int, here bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease, f.number, f.here
}

// result returns the outcome of a flight that has ended, or nil, and whether the key has a record.
func (f *flight) result() (outcome *Outcome, seen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outcome, f.seen
}

// rechecked returns the channel by which the leader is asked to read the request again.
func (f *flight) rechecked() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rechecks == nil {
		f.rechecks = make(chan struct{}, 1)
	}
	return f.rechecks
}

// recheck asks the leader to read the request again: whether the other process's attempt has ended.
func (f *flight) recheck() {
	select {
	case f.rechecked() <- struct{}{}:
	default:
	}
}

// end ends a flight, unless it has ended. seen says that its key has a record although there was no attempt.
func (s *flights) end(ref string, f *flight, outcome *Outcome, seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[ref] != f {
		return
	}
	delete(s.of, ref)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.outcome, f.seen = true, outcome, seen
	if f.signals != nil {
		close(f.signals.done)
	}
}
