package work

import (
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// slots measures how long a free slot stays free while a caller waits for one. A slot is free
// from the call that releases it, so the time includes the release itself.
type slots struct {
	mu      sync.Mutex
	free    []time.Time // since when, the oldest first
	waiting int
	since   time.Time // a caller has waited all the time since
	idle    []time.Duration
	on      bool
}

// ask counts a caller that begins to wait.
func (s *slots) ask(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting++; s.waiting == 1 {
		s.since = now
	}
}

// grant counts a caller that has a permit: it has taken the slot that is free for the longest time.
func (s *slots) grant(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	if len(s.free) == 0 {
		return
	}
	since := s.free[0]
	s.free = s.free[1:]
	if since.Before(s.since) {
		since = s.since
	}
	if s.on {
		s.idle = append(s.idle, now.Sub(since))
	}
}

// leave counts a caller that does not wait any more, and has no permit.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// release counts n slots that are free from now on.
func (s *slots) release(now time.Time, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.free = append(s.free, now)
	}
}

// measure has grants counted from now on, or not any more.
func (s *slots) measure(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

// sample returns what was measured. A slot that is free at the end, while a caller waits, counts.
func (s *slots) sample(now time.Time) measure.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.idle
	if s.waiting > 0 && len(s.free) > 0 {
		since := s.free[0]
		if since.Before(s.since) {
			since = s.since
		}
		idle = append(idle, now.Sub(since))
	}
	if len(idle) == 0 {
		return measure.Sample{}
	}
	return measure.Sample{measure.IdleMedian: ms(measure.Median(idle)), measure.IdleLongest: ms(measure.Quantile(idle, 1))}
}
