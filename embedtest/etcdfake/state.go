package etcdfake

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// SetLeader takes the cluster's leader away, or gives it a new one. Without one, requests
// and streams that require a leader are refused. Of the others, serializable reads, watches
// and the list of leases are answered; the rest waits for a leader, 7 seconds at most. Leases
// do not end.
func (s *Server) SetLeader(is bool) {
	s.tb.Helper()
	s.onlyFake("SetLeader")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	switch {
	case is && !isClosed(s.leader):
		close(s.leader)
		// A new leader gives all leases their whole time.
		s.stuck = false
		for _, l := range s.leases {
			l.expires = s.now().Add(time.Duration(l.ttl) * time.Second)
		}
		s.findNext()
		s.renewAgain()
	case !is && isClosed(s.leader):
		s.leader = make(chan struct{})
		s.stuck = true
		s.renewAgain()
		for _, t := range append([]*serverStream(nil), s.streams...) {
			if t.require {
				t.fail(errNoLeader)
			}
		}
	}
}

// ShiftClock sets the server's clock forward, or back: leases end so much earlier, or
// later, than their TTL says.
func (s *Server) ShiftClock(d time.Duration) {
	s.tb.Helper()
	s.onlyFake("ShiftClock")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.skew += d
	s.expire()
	s.findNext()
}

// Expire ends a lease now, as the leader does when its time is over. It returns
// whether there was one.
func (s *Server) Expire(id clientv3.LeaseID) bool {
	if s.real != nil {
		s.tb.Helper()
		return s.real.expire(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[int64(id)]
	if l != nil {
		s.end(l)
		s.findNext()
	}
	return l != nil
}

// Compact forgets all history but the present. It returns the revision up to which.
func (s *Server) Compact() int64 {
	if s.real != nil {
		s.tb.Helper()
		return s.real.compact()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if s.store.compacted < s.store.revision {
		s.store.compact(s.store.revision)
	}
	return s.store.compacted
}

// Keys returns the keys that begin with a prefix, sorted, without any request.
func (s *Server) Keys(prefix string) []string {
	if s.real != nil {
		s.tb.Helper()
		return s.real.keys(prefix)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.store.prefixed(prefix)
}

// Leases returns the leases that live, the one that ends first first.
func (s *Server) Leases() (ids []clientv3.LeaseID) {
	if s.real != nil {
		s.tb.Helper()
		return s.real.leases()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	for _, l := range s.listLeases().Leases {
		ids = append(ids, clientv3.LeaseID(l.ID))
	}
	return ids
}

// Revision returns the revision of the last change.
func (s *Server) Revision() int64 {
	if s.real != nil {
		s.tb.Helper()
		return s.real.revision()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.store.revision
}

// Backup returns what brings the server back to its present state, as a restored
// backup does: history is taken back, leases have their whole time again, and all
// streams break.
func (s *Server) Backup() (restore func()) {
	s.tb.Helper()
	s.onlyFake("Backup")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	saved, ids := s.store.clone(), map[int64]int64{}
	for id, l := range s.leases {
		ids[id] = l.ttl
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.store, s.leases = saved.clone(), map[int64]*lease{}
		for id, ttl := range ids {
			s.leases[id] = &lease{id: id, ttl: ttl, keys: map[string]bool{}, expires: s.now().Add(time.Duration(ttl) * time.Second)}
		}
		for _, kv := range s.store.at(span{"\x00", fromKey}, s.store.revision) {
			if l := s.leases[kv.Lease]; l != nil {
				l.keys[string(kv.Key)] = true
			}
		}
		s.findNext()
		for _, t := range append([]*serverStream(nil), s.streams...) {
			t.snap(errUnavailable)
		}
		s.renewAgain()
	}
}

// onlyFake skips the test on a real etcd.
func (s *Server) onlyFake(call string) {
	s.tb.Helper()
	if s.real != nil {
		s.tb.Skipf("etcdfake: %s: not possible on a real etcd (etcdfake.Endpoints)", call)
	}
}
