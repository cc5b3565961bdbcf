package engine

// Seen returns the greatest revision of etcd that the session has met.
func (s *Session) Seen() int64 { return s.seen.Load() }

// See records a revision of etcd that was met.
func (s *Session) See(revision int64) {
	for {
		seen := s.seen.Load()
		if revision <= seen || s.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// Rewind forgets what was seen and loses the lease. A write that got a revision which was met
// before it was sent shows that this is due, at once; lists that stay older than what was
// seen show it in time.
func (s *Session) Rewind() {
	s.mu.Lock()
	e := s.current
	s.mu.Unlock()
	s.seen.Store(0)
	s.opts.Rewound()
	if e != nil {
		e.lease.Lose(errRewound)
	}
}
