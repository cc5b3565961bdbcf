package check

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// simBase is the default limit of a limiter. Its record says by which limits requests may have been
// admitted.
type simBase struct {
	limit, previous int64
}

// beginKeyed stores the default of a limiter with one key.
func (s *sim) beginKeyed() {
	s.base = &simBase{}
	s.gates = append(s.gates, &simGate{name: "limiter/l/key/k", base: s.base})
	s.setDefault(int64(1+s.pick(3)), 0)
}

func (s *sim) keyedStep() {
	by := s.pick(len(s.clients))
	switch s.pick(4) {
	case 0:
		s.askOwn(s.gates[2], int64(s.pick(4)), by)
	case 1:
		s.askClear(s.gates[2], by)
	default:
		s.askDefault(int64(s.pick(4)), by)
	}
}

// setDefault changes the limit of all keys that have none of their own.
func (s *sim) setDefault(n int64, by int) {
	b := s.base
	if b.previous = max(b.previous, b.limit); n >= b.previous {
		b.previous = 0
	}
	b.limit = n
	s.storeDefault(record.Limit{Limit: n, Previous: b.previous, By: fmt.Sprintf("c%d", by), Settled: b.previous == 0})
}

// storeDefault stores a default as it is.
func (s *sim) storeDefault(r record.Limit) {
	for _, g := range s.gates {
		if g.base != nil && !g.owned {
			g.limit, g.known = r.Limit, true
		}
	}
	s.commit(change{key: "limiter/l/default", value: r.Encode()})
}

// setOwn changes a key's own limit. What it says about earlier admissions is exact.
func (s *sim) setOwn(g *simGate, r record.Limit) {
	g.limit, g.owned = r.Limit, !r.Inherit
	s.commit(change{key: g.name + "/limit", value: r.Encode()})
}

func (s *sim) askDefault(n int64, by int) {
	s.asking(history.Event{Name: history.SetDefault, Gate: "limiter/l", Limit: n}, by, func() { s.setDefault(n, by) })
}

func (s *sim) askOwn(g *simGate, n int64, by int) {
	s.asking(history.Event{Name: history.SetLimit, Gate: g.name, Limit: n}, by, func() {
		s.setOwn(g, record.Limit{Limit: n, Through: g.above, By: fmt.Sprintf("c%d", by), Settled: true})
	})
}

func (s *sim) askClear(g *simGate, by int) {
	s.asking(history.Event{Name: history.ClearLimit, Gate: g.name}, by, func() {
		if g.owned {
			s.setOwn(g, record.Limit{Limit: s.base.limit, Through: g.above, By: fmt.Sprintf("c%d", by), Settled: true, Inherit: true})
		}
	})
}

// asking records a call that changes a limit.
func (s *sim) asking(e history.Event, by int, change func()) {
	s.ops++
	e.Kind, e.Client, e.Op = history.KindCall, fmt.Sprintf("c%d", by), s.ops
	s.emit(e)
	change()
	e.Kind, e.Outcome = history.KindReturn, history.OK
	if s.pick(4) == 0 {
		e.Outcome = history.Unknown
	}
	s.emit(e)
}
