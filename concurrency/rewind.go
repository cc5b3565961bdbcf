package concurrency

import "errors"

// errRewound ends a session whose etcd was taken back to a backup: of its permits
// nobody knows which are still in etcd, and what was seen before has never been.
var errRewound = errors.New("etcd's history was taken back: a backup was restored")

// see notes a revision of etcd that was met.
func (s *Session) see(revision int64) {
	for {
		seen := s.seen.Load()
		if revision <= seen || s.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// rewound forgets what was seen and loses the lease. A write that got a revision
// which was met before it was sent shows that this is due, at once; lists that stay
// older than what was seen show it in time.
func (s *Session) rewound() {
	s.mu.Lock()
	e := s.current
	var gates []*gate
	for _, p := range s.gates {
		if g := p.Value(); g != nil {
			gates = append(gates, g)
		}
	}
	s.mu.Unlock()
	s.seen.Store(0)
	for _, g := range gates {
		g.reset()
	}
	if e != nil {
		e.lease.Lose(errRewound)
	}
}

// reset has the gate forget what it has seen; who waits or watches joins a new mirror.
func (g *gate) reset() {
	g.limit.Store(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strays = nil // a revision may stand for another state by now
	if g.mirror != nil {
		g.halt()
		close(g.fresh)
		g.mirror = nil
	}
}
