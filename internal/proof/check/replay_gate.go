package check

import (
	"cmp"
	"slices"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// gate is one queue.
type gate struct {
	name     string
	fixed    int64
	requests []*request // in the order of their tokens
	own      stored     // its own limit, as of the last revision
	base     *stored    // the default as of the last revision, nil where there is none
	limits   []limit    // what has limited it, in the order of revisions
	states   []state    // after each revision that changed something

	disowned map[string]*request // by key: those that lost their lease
	queue    []*request          // live ones, in the order of their tokens
	held     int                 // queue[:held] are admitted
	used     int64
	above    int64 // the greatest token ever admitted
}

type state struct {
	rev   int64
	at    int64 // when the tap saw it
	held  int64 // weight of the admitted
	all   int64 // weight of all
	limit int64
	known bool
}

// request is one life of a request's key.
type request struct {
	gate     *gate
	key      string
	parsed   parsedKey
	token    int64
	putAt    int64 // when the tap saw it
	lease    int64 // its lease
	rec      record.Request
	again    []int64 // revisions at which it was written again
	twins    bool    // another request of the queue was created at the same revision
	admitted int64   // revision at which the rule admits it, 0 if it never does
	fits     []stretch
	gone     int64 // revision, or never
	goneAt   int64
	how      ending
	erased   bool          // of an attempt: its record was deleted under it
	notice   record.Notice // if it was taken away
	asked    bool          // another session asked that it end
	of       *request      // in the queue of a total: the one at its key
	next     *request      // the one in the queue of the total that was put last for it
	proven   bool          // its key's request was admitted when it was put
}

// ending is how a request's key went.
type ending int

const (
	exists     ending = iota
	plain             // a delete of this key
	withLease         // its lease ended
	withNotice        // removed by another, with a notice
	disowned          // it was written again without a lease, and counts no more
)

func (e ending) String() string {
	return [...]string{"it exists", "deleted", "its lease ended", "taken away", "overwritten without a lease"}[e]
}

// write applies a put to a request's key. A key that is written again keeps its
// place, but without a lease it counts no more.
func (g *gate) write(e history.Event, k parsedKey, c history.Commit) {
	if at := slices.IndexFunc(g.queue, func(r *request) bool { return r.key == string(e.KV.Key) }); at >= 0 {
		r := g.queue[at]
		r.again = append(r.again, c.Rev)
		if e.KV.Lease == 0 {
			g.drop(at, c, disowned)
			g.disowned[r.key] = r
		}
		return
	}
	if e.KV.Lease == 0 {
		return // foreign
	}
	r := g.disowned[string(e.KV.Key)]
	if r != nil && r.token == e.KV.Create { // it has its lease back, and its place
		r.again = append(r.again, c.Rev)
		r.gone, r.goneAt, r.how = never, never, exists
	} else {
		r = &request{gate: g, key: string(e.KV.Key), parsed: k, token: e.KV.Create, putAt: c.At, lease: e.KV.Lease, gone: never, goneAt: never}
		r.rec, _ = record.DecodeRequest([]byte(e.KV.Value))
		g.requests = append(g.requests, r)
	}
	at, _ := slices.BinarySearchFunc(g.queue, r, byToken)
	if at > 0 && g.queue[at-1].token == r.token {
		r.twins = true
	}
	g.queue = slices.Insert(g.queue, at, r)
	if at < g.held || r.token <= g.above { // every request before a holder holds
		g.held++
		g.used += r.parsed.weight
		r.admitted = cmp.Or(r.admitted, c.Rev)
	}
}

func byToken(a, b *request) int {
	return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.key, b.key))
}

// remove applies a delete. What goes together with its presence key, or after it,
// goes with its lease.
func (g *gate) remove(e history.Event, c history.Commit, leases map[int64]*lease, notices map[string]record.Notice) {
	at := slices.IndexFunc(g.queue, func(r *request) bool { return r.key == string(e.KV.Key) })
	if at < 0 {
		return // foreign, or disowned before
	}
	r := g.queue[at]
	noticed := r.key
	if r.of != nil {
		noticed = r.of.key // one notice for both
	}
	notice, taken := notices[noticed]
	l := leases[r.lease]
	switch {
	case l != nil && l.gone <= c.Rev:
		g.drop(at, c, withLease)
	case taken:
		r.notice = notice
		g.drop(at, c, withNotice)
	default:
		g.drop(at, c, plain)
	}
}

func (g *gate) drop(at int, c history.Commit, how ending) {
	r := g.queue[at]
	r.gone, r.goneAt, r.how = c.Rev, c.At, how
	if at < g.held {
		g.held--
		g.used -= r.parsed.weight
	}
	g.queue = slices.Delete(g.queue, at, at+1)
}

// admit is the rule: in the order of tokens, every request that fits beside all before it.
func (g *gate) admit(c history.Commit) {
	l := g.limitAt(c.Rev)
	for l.known && g.held < len(g.queue) && g.used+g.queue[g.held].parsed.weight <= l.n {
		r := g.queue[g.held]
		r.admitted = c.Rev
		g.used += r.parsed.weight
		g.above = max(g.above, r.token)
		g.held++
	}
	st := state{rev: c.Rev, at: c.At, held: g.used, limit: l.n, known: l.known}
	for _, r := range g.queue {
		st.all += r.parsed.weight
		r.fit(c.Rev, l.known && (st.all <= l.n || r.token <= l.own.record.Through))
	}
	g.states = append(g.states, st)
}

// stateAt returns what the queue was like at a revision.
func (g *gate) stateAt(rev int64) state {
	at, _ := slices.BinarySearchFunc(g.states, rev+1, func(s state, rev int64) int { return cmp.Compare(s.rev, rev) })
	if at == 0 {
		return state{}
	}
	return g.states[at-1]
}
