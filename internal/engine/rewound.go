package engine

import "sync"

// Subscribers are called when etcd's history was taken back. It is safe for concurrent use.
type Subscribers struct {
	mu  sync.Mutex
	all []func()
}

// Add adds a function, for as long as the session lives: it forgets the revisions that were stored, and does not wait for etcd.
func (s *Subscribers) Add(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fn)
}

func (s *Subscribers) call() {
	s.mu.Lock()
	all := s.all
	s.mu.Unlock()
	for _, fn := range all {
		fn()
	}
}
