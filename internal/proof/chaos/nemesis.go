package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// Nemesis is one way to do harm.
type Nemesis struct {
	Name string
	// Elects: it may make etcd elect a leader.
	Elects bool
	// Needs reports whether it can strike this environment; nil means any.
	Needs func(*Env) bool
	// Strike does harm until ctx ends, mends what it broke, and returns how
	// often the harm was seen to have an effect. What it draws, it draws from
	// r, before it looks at the cluster. Harm from which the guarantees are
	// excepted is declared in the history.
	Strike func(ctx context.Context, env *Env, r *rand.Rand) int
}

// strike is one entry of the schedule: one nemesis or two, after a pause.
type strike struct {
	Pause, For time.Duration
	Nemeses    []Nemesis
}

// schedule draws the strikes of a run. Every nemesis comes once alone or in a
// pair before one comes again, so that a short run has met all of them.
type schedule struct {
	r    *rand.Rand
	all  []Nemesis
	bag  []Nemesis
	pair bool
}

func newSchedule(s Seed, all []Nemesis) *schedule {
	return &schedule{r: s.Stream("schedule"), all: all}
}

func (s *schedule) next() strike {
	st := strike{
		Pause:   time.Duration(300+s.r.IntN(900)) * time.Millisecond,
		For:     time.Duration(400+s.r.IntN(2200)) * time.Millisecond,
		Nemeses: []Nemesis{s.draw("")},
	}
	if s.r.IntN(5) == 0 { // beyond every TTL
		st.For += 4 * time.Second
	}
	if s.pair {
		st.Nemeses = append(st.Nemeses, s.draw(st.Nemeses[0].Name))
	}
	s.pair = !s.pair
	return st
}

// draw takes a nemesis other than that one out of the bag.
func (s *schedule) draw(but string) Nemesis {
	for {
		if len(s.bag) == 0 {
			s.bag = slices.Clone(s.all)
			s.r.Shuffle(len(s.bag), func(i, j int) { s.bag[i], s.bag[j] = s.bag[j], s.bag[i] })
		}
		n := s.bag[0]
		if n.Name == but && len(s.all) > 1 {
			if len(s.bag) == 1 {
				s.bag = nil
				continue
			}
			s.bag[0], s.bag[1] = s.bag[1], s.bag[0]
			continue
		}
		s.bag = s.bag[1:]
		return n
	}
}
