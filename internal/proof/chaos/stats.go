package chaos

import (
	"maps"
	"sync"
)

// Stats counts what happened in a run.
type Stats struct {
	mu sync.Mutex
	n  map[string]int
}

func newStats() *Stats { return &Stats{n: map[string]int{}} }

// Add counts n more of something.
func (s *Stats) Add(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n[what] += n
}

// Get returns how many there were of something.
func (s *Stats) Get(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[what]
}

// All returns all counts.
func (s *Stats) All() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}
