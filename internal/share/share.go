// Package share is the part of a limit that one process may use without etcd: the outage policy
// Share of the limiting middlewares. A pure function decides, a Share keeps what it decides by.
// Package concurrency counts the sessions, package middleware runs the requests.
package share

import (
	"errors"
	"sync"
)

// ErrUnseen is what a *concurrency.FullError matches as well if the call ended before etcd had shown it the
// queue: then it is not known whether a permit was free.
var ErrUnseen = errors.New("etcd has not shown the queue in time")

// Share is what one session knows of its share of one limit. It is safe for concurrent use.
type Share struct {
	of Source

	mu       sync.Mutex
	sessions int64
	running  int64
	drained  chan struct{} // closed when running is 0 again; nil if it is
}

// Source is what a Share asks its session.
type Source struct {
	Trusted func() bool  // whether its lease is trusted
	Limit   func() int64 // that was last read, or 0
	Permits func() int64 // weight of its work that began under permits
}

// New returns a Share.
func New(of Source) *Share { return &Share{of: of} }

// Count records how many sessions share the limit; 0 if that is not known.
func (s *Share) Count(sessions int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = sessions
}

// Enter decides how a request runs. After Run it is counted until Leave.
func (s *Share) Enter(weight int64, outage bool) (Verdict, Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.facts()
	f.Outage, f.Weight = outage, weight
	v := f.Decide()
	if v == Run {
		if s.running == 0 {
			s.drained = make(chan struct{})
		}
		s.running += weight
	}
	return v, f
}

// Leave ends what Enter has counted: the request has ended, or has a permit.
func (s *Share) Leave(weight int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running -= weight; s.running == 0 {
		close(s.drained)
		s.drained = nil
	}
}

// Draining returns a channel that is closed when work under a permit may begin, or nil if that is
// now.
func (s *Share) Draining() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drained
}

// Facts returns what is known, without a request.
func (s *Share) Facts() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts()
}

func (s *Share) facts() Facts {
	return Facts{Trusted: s.of.Trusted(), Limit: s.of.Limit(), Sessions: s.sessions, Permits: s.of.Permits(), Running: s.running}
}
