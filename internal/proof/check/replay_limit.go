package check

import (
	"cmp"
	"slices"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// stored is the record of a limit as of one revision.
type stored struct {
	rev, at  int64
	found    bool // the key exists
	readable bool
	first    bool // there was none before: what it knew of earlier admissions is lost
	record   record.Limit
	set      setter // the call that may have made it
}

// readStored takes over a stored limit, which is that of a queue or a limiter. One that claims
// admissions after itself cannot be read.
func readStored(e history.Event, c history.Commit, name string) stored {
	s := stored{rev: c.Rev, at: c.At, first: true}
	if e.Kind != history.KindPut {
		return s
	}
	r, ok := record.DecodeLimit([]byte(e.KV.Value))
	s.found, s.readable, s.first, s.record = true, ok && r.Through < c.Rev, e.KV.Version == 1, r
	s.set = setter{gate: name, client: r.By, limit: r.Limit}
	if r.Inherit {
		s.set.limit = inherit
	}
	return s
}

// inherit is the default, in a call that sets a limit.
const inherit = -1

// limit is what limits a queue from a revision on. An unreadable record admits nothing.
type limit struct {
	rev, at int64
	n       int64
	known   bool
	set     setter
	first   bool
	own     stored
	inForce stored // the default if the queue has no limit of its own, else own
	above   int64  // the greatest token admitted before
	hidden  int64  // token of a live admitted request that the records do not count as held, or 0
}

// unsettled reports whether the records show more holders than there may be.
func (l limit) unsettled() bool { return l.own.record.Unsettled() || l.inForce.record.Unsettled() }

// mayHold reports whether the records leave open that a request was admitted before, given the
// weight up to it.
func (l limit) mayHold(r *request, upTo int64) bool {
	for _, s := range [...]stored{l.own, l.inForce} {
		if s.record.Unsettled() && r.token < s.rev && upTo <= s.record.Previous {
			return true
		}
	}
	return false
}

// inherits begins with the default that is stored.
func (g *gate) inherits(base *stored) {
	g.base = base
	if base.found {
		g.limited(*base)
		l := g.limits[0]
		g.states = append(g.states, state{rev: l.rev, at: l.at, limit: l.n, known: l.known})
	}
}

// setLimit takes over the queue's own limit.
func (g *gate) setLimit(e history.Event, c history.Commit) {
	g.own = readStored(e, c, g.name)
	g.limited(g.own)
}

// setBase takes over the default, which counts only where the queue has no limit of its own.
func (g *gate) setBase() {
	if g.inForce().rev == g.base.rev {
		g.limited(*g.base)
	}
}

// inForce returns the record whose limit counts.
func (g *gate) inForce() stored {
	if g.base != nil && (!g.own.found || g.own.readable && g.own.record.Inherit) {
		return *g.base
	}
	return g.own
}

// limited adds what limits the queue since one of the records was changed.
func (g *gate) limited(changed stored) {
	in := g.inForce()
	l := limit{
		rev: changed.rev, at: changed.at, set: changed.set, first: changed.first,
		n: in.record.Limit, known: in.readable, own: g.own, inForce: in, above: g.above,
	}
	if shown := g.shown(l); l.known && shown < g.held {
		l.hidden = g.queue[shown].token
	}
	g.limits = append(g.limits, l)
}

// shown returns how many of the queue a reader of nothing but the limit's records and
// the queue takes for holders: those up to Through, those that fit besides, and,
// while a record is not settled, those that may have been admitted just before.
func (g *gate) shown(l limit) (n int) {
	upTo := int64(0)
	for _, r := range g.queue {
		upTo += r.parsed.weight
		if r.token > l.own.record.Through && upTo > l.n && !l.mayHold(r, upTo) {
			break
		}
		n++
	}
	return n
}

// limitAt returns the limit in force at a revision.
func (g *gate) limitAt(rev int64) limit {
	if g.fixed > 0 {
		return limit{n: g.fixed, known: true}
	}
	at, _ := slices.BinarySearchFunc(g.limits, rev+1, func(l limit, rev int64) int { return cmp.Compare(l.rev, rev) })
	if at == 0 {
		return limit{}
	}
	return g.limits[at-1]
}

// stretch is a time in which a request fitted, from one revision to another or never.
type stretch struct{ from, to int64 }

// fit notes whether a request fits as of a revision.
func (r *request) fit(rev int64, fits bool) {
	last := len(r.fits) - 1
	switch open := last >= 0 && r.fits[last].to == never; {
	case fits && !open:
		r.fits = append(r.fits, stretch{rev, never})
	case !fits && open:
		r.fits[last].to = rev
	}
}

// reportable returns the times in which the caller of a request has to receive its permit. Where a
// default counts, an admission that no caller has seen does not last if the default is lowered.
func (r *request) reportable() []stretch {
	if r.gate.base == nil {
		return []stretch{{r.admitted, never}}
	}
	return r.fits
}
