package work

import (
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// A slot is idle only while a caller waits, and the slot that is free for the longest time is taken first.
func TestSlots(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Millisecond) }
	for name, c := range map[string]struct {
		play func(s *slots)
		want float64
	}{
		"free before anybody waits":     {func(s *slots) { s.release(at(0), 1); s.ask(at(50)); s.grant(at(53)) }, 3},
		"released while somebody waits": {func(s *slots) { s.ask(at(0)); s.release(at(10), 1); s.grant(at(17)) }, 7},
		"the oldest is taken first": {func(s *slots) {
			s.ask(at(0))
			s.ask(at(0))
			s.release(at(1), 1)
			s.release(at(8), 1)
			s.grant(at(9))
			s.grant(at(10))
		}, 8},
		"still free at the end":        {func(s *slots) { s.ask(at(0)); s.release(at(60), 1) }, 40},
		"all that waited have left":    {func(s *slots) { s.ask(at(0)); s.release(at(1), 1); s.leave(); s.ask(at(90)); s.grant(at(92)) }, 2},
		"not while it is not measured": {func(s *slots) { s.measure(false); s.ask(at(0)); s.release(at(1), 1); s.grant(at(9)) }, 0},
		"more permits than free slots": {func(s *slots) { s.ask(at(0)); s.grant(at(9)) }, 0},
	} {
		s := &slots{on: true}
		c.play(s)
		if got := s.sample(at(100))[measure.IdleLongest]; got != c.want {
			t.Errorf("%s: %v ms, not %v", name, got, c.want)
		}
	}
}
