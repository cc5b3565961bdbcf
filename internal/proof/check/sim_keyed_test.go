package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// simBase is the default limit of a limiter. Its record says by which limits requests may have been
// admitted.
type simBase struct {
	limiter         string
	limit, previous int64
	total           *simGate // of all keys, or nil
}

// beginKeyed stores the default of a limiter with one key, and that of one with two keys and a total.
func (s *sim) beginKeyed() {
	s.base = &simBase{limiter: "limiter/l"}
	total := &simGate{name: "limiter/m/total"}
	m := &simBase{limiter: "limiter/m", total: total}
	s.bases = []*simBase{s.base, m}
	s.gates = append(s.gates, &simGate{name: "limiter/l/key/k", base: s.base},
		&simGate{name: "limiter/m/key/x", base: m, total: total}, &simGate{name: "limiter/m/key/y", base: m, total: total}, total)
	s.setDefault(s.base, int64(1+s.pick(3)), 0)
	s.setDefault(m, int64(1+s.pick(3)), 0)
	s.setLimit(total, int64(2+s.pick(3)), true, 0)
}

// permitted returns the queues whose permits calls may ask for.
func (s *sim) permitted() (some []*simGate) {
	for _, g := range s.gates {
		if !isTotal(g.name) {
			some = append(some, g)
		}
	}
	return some
}

func (s *sim) keyedStep() {
	by := s.pick(len(s.clients))
	g := s.gates[2+s.pick(3)]
	switch s.pick(5) {
	case 0:
		s.askOwn(g, int64(s.pick(4)), by)
	case 1:
		s.askClear(g, by)
	case 2:
		s.askTotal(int64(s.pick(5)), by)
	default:
		s.askDefaultOf(g.base, int64(s.pick(4)), by)
	}
}

// finishKeyed has all limits admit all that may be asked for.
func (s *sim) finishKeyed() {
	for _, b := range s.bases {
		if b.limit < 3 {
			s.askDefaultOf(b, 3, 0)
		}
		if b.total != nil && b.total.limit < 3 {
			s.askTotal(3, 0)
		}
	}
	for _, g := range s.gates {
		if g.base != nil {
			s.askClear(g, 0)
		}
	}
}

// numbered reports whether a request at a key of the same limiter has that slot: with a total it is
// one request's in all of them.
func (s *sim) numbered(g *simGate, slot string) bool {
	if g.total == nil {
		return false
	}
	for key := range s.keys {
		if strings.HasPrefix(key, g.base.limiter+"/") && strings.HasSuffix(key, slot) {
			return true
		}
	}
	return false
}

// nextOf adds the request in the queue of the total that belongs to one at its key.
func (s *sim) nextOf(r *simReq) change {
	total := r.gate.total
	t := &simReq{gate: total, call: r.call, weight: r.weight, lease: r.lease, token: s.rev + 1, key: total.name + strings.TrimPrefix(r.key, r.gate.name)}
	r.next = t
	total.queue = append(total.queue, t)
	return change{key: t.key, lease: t.lease, value: record.Request{Nonce: "n", Owner: r.call.client.name, Of: simPrefix + r.key, Note: history.Tag(r.call.client.name, r.call.op)}.Encode()}
}

// join writes the request of the total for one that is admitted at its key.
func (s *sim) join(r *simReq) { s.commit(s.nextOf(r)) }

// joins takes the step of a call that waits at its key, if there is one.
func (s *sim) joins(c *simCall) bool {
	r := c.req
	switch {
	case r.gate.total == nil || r.gone != "":
	case r.next == nil && s.fits(r) && r.lease == c.client.lease:
		s.join(r)
		return true
	case r.next != nil && r.next.gone != "": // by hand: it begins anew
		s.remove(r, "withdrawn")
	}
	return false
}

// fits reports whether the limit of a key has room for a request and all before it.
func (s *sim) fits(r *simReq) bool {
	upTo := int64(0)
	for _, o := range r.gate.queue {
		if o.token <= r.token {
			upTo += o.weight
		}
	}
	return r.gate.known && upTo <= r.gate.limit
}

// ready reports whether a call may be granted its permit.
func (c *simCall) ready() bool {
	return c.req.admitted && (c.gate.total == nil || c.req.next != nil && c.req.next.admitted)
}

// token is that of the permit, which is the total's.
func (c *simCall) token() int64 { return cmp.Or(c.req.next, c.req).token }

// sweep removes a request of the total whose one at the key was removed by hand.
func (s *sim) sweep(c *simCall) {
	if t := c.req.next; c.req.gone != "" && t != nil && t.gone == "" {
		t.leave("swept")
		s.commit(change{key: t.key, del: true})
	}
}

// setDefault changes the limit of all keys that have none of their own.
func (s *sim) setDefault(b *simBase, n int64, by int) {
	if b.previous = max(b.previous, b.limit); n >= b.previous {
		b.previous = 0
	}
	b.limit = n
	s.storeDefaultOf(b, record.Limit{Limit: n, Total: b.total != nil, Previous: b.previous, By: fmt.Sprintf("c%d", by), Settled: b.previous == 0})
}

// storeDefault stores a default as it is.
func (s *sim) storeDefault(r record.Limit) { s.storeDefaultOf(s.base, r) }

func (s *sim) storeDefaultOf(b *simBase, r record.Limit) {
	for _, g := range s.gates {
		if g.base == b && !g.owned {
			g.limit, g.known = r.Limit, true
		}
	}
	s.commit(change{key: b.limiter + "/default", value: r.Encode()})
}

// setOwn changes a key's own limit. What it says about earlier admissions is exact.
func (s *sim) setOwn(g *simGate, r record.Limit) {
	g.limit, g.owned = r.Limit, !r.Inherit
	s.commit(change{key: g.name + "/limit", value: r.Encode()})
}

func (s *sim) askDefault(n int64, by int) { s.askDefaultOf(s.base, n, by) }

func (s *sim) askDefaultOf(b *simBase, n int64, by int) {
	s.asking(history.Event{Name: history.SetDefault, Gate: b.limiter, Limit: n}, by, func() { s.setDefault(b, n, by) })
}

func (s *sim) askTotal(n int64, by int) {
	g := s.bases[1].total
	s.asking(history.Event{Name: history.SetLimit, Gate: g.name, Limit: n}, by, func() { s.setLimit(g, n, false, by) })
}

func (s *sim) askOwn(g *simGate, n int64, by int) {
	s.asking(history.Event{Name: history.SetLimit, Gate: g.name, Limit: n}, by, func() {
		s.setOwn(g, record.Limit{Limit: n, Through: g.above, By: fmt.Sprintf("c%d", by), Settled: true})
	})
}

func (s *sim) askClear(g *simGate, by int) {
	s.asking(history.Event{Name: history.ClearLimit, Gate: g.name}, by, func() {
		if g.owned {
			s.setOwn(g, record.Limit{Limit: g.base.limit, Through: g.above, By: fmt.Sprintf("c%d", by), Settled: true, Inherit: true})
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
