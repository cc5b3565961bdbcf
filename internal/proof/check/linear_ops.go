package check

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// linearOps returns the operations on one queue, each with the time in which it
// took effect.
//
// An acquire takes effect between its call and its return. A permit ends between
// the call and the return of its release; or, if it was not released, between the
// last time at which its holder was known to hold and the time at which the
// tap saw its key gone. A release that was confirmed although the tap saw the key
// gone before it was called is an operation of its own, and makes no sense then.
// Without a tap, a permit that was not released may end at any time.
//
// A permit whose call did not return counts while it was admitted, as the tap shows; so does one whose
// key several calls shared, once for all of them.
// Without a tap it is left out: had it taken effect it could only have been in the
// way of others. Limits come from the tap, or from the calls that set them.
func (v *view) linearOps(name string) []porcupine.Operation {
	b := &linearBuilder{view: v, name: name, clients: map[string]int{}}
	for i := range v.spans {
		if s := &v.spans[i]; s.Granted.Gate == name && !v.shares(s) {
			b.permit(s)
		}
	}
	g := v.gates[name]
	if g == nil || !v.tapped {
		b.calledLimits()
		return b.ops
	}
	for _, r := range g.requests {
		if v.spanOf[r] == nil && r.admitted != 0 {
			b.silent(r)
		}
	}
	for _, l := range g.limits {
		b.add("tap", action{kind: "limit", limit: l.n, known: l.known, rev: l.rev}, v.notBefore(l.rev), l.at)
	}
	b.order()
	return b.ops
}

// order gives what the tap has seen the places of its revisions. Of what one revision has done, a limit
// and the ends of permits come first: they admit others.
func (b *linearBuilder) order() {
	rank := map[string]int{"limit": 0, "end": 1, "release": 1, "acquire": 2}
	var seen []int
	for i, op := range b.ops {
		if op.Input.(action).rev != 0 {
			seen = append(seen, i)
		}
	}
	slices.SortStableFunc(seen, func(i, j int) int {
		a, c := b.ops[i].Input.(action), b.ops[j].Input.(action)
		return cmp.Or(cmp.Compare(a.rev, c.rev), cmp.Compare(rank[a.kind], rank[c.kind]), cmp.Compare(a.token, c.token))
	})
	for place, i := range seen {
		a := b.ops[i].Input.(action)
		a.place = place + 1
		b.ops[i].Input = a
	}
}

type linearBuilder struct {
	*view
	name    string
	clients map[string]int
	ops     []porcupine.Operation
}

// add adds an operation, with a row of the picture for each client.
func (b *linearBuilder) add(client string, a action, from, to int64) {
	row, ok := b.clients[client]
	if !ok {
		row = len(b.clients)
		b.clients[client] = row
	}
	b.ops = append(b.ops, porcupine.Operation{ClientId: row, Input: a, Call: from, Return: max(from, to)})
}

// permit adds a permit that was granted, and its end.
func (b *linearBuilder) permit(s *history.Span) {
	g := s.Granted
	a := action{kind: "acquire", token: g.Token, weight: max(g.Weight, 1)}
	called := s.From
	if op := b.opByTag[history.Tag(g.Client, g.Op)]; op != nil {
		called = op.Call.At
	}
	b.add(g.Client, a, called, s.From)

	r := b.byToken[id{g.Gate, g.Token}]
	gone, rev := never, int64(0)
	if r != nil {
		gone, rev = r.goneAt, goneRev(r)
	}
	last := called // when it certainly existed
	if s.Confirmed {
		last = s.To
	}
	if r != nil && (last > gone || b.excuse(r) != "") { // its holder's belief proves nothing; checker belief judges that
		last = called
	}
	release := b.confirmed(g)
	a.kind, a.rev = "end", rev
	switch {
	case release != nil && gone < release.Call.At:
		b.add("etcd", a, last, gone)
		if r == nil || b.excuse(r) == "" {
			a.kind, a.rev = "release", 0
			b.add(g.Client, a, release.Call.At, release.Return.At)
		}
	case release != nil && r != nil && b.excuse(r) != "": // others may have been faster
		b.add("etcd", a, last, gone)
	case release != nil:
		a.kind = "release"
		b.add(g.Client, a, release.Call.At, min(release.Return.At, gone))
	case gone != never:
		b.add("etcd", a, last, gone)
	case r == nil: // it is unknown
		b.add("etcd", a, last, never)
	}
}

// confirmed returns the release of a permit that has succeeded, if one has.
func (b *linearBuilder) confirmed(g history.Event) *history.Op {
	for _, op := range b.releases[id{g.Gate, g.Token}] {
		if op.Outcome() == history.OK {
			return op
		}
	}
	return nil
}

// goneRev returns the revision at which a request was deleted, or 0.
func goneRev(r *request) int64 {
	if r.gone == never {
		return 0
	}
	return r.gone
}

// silent adds a permit whose call did not return, or whose key several calls shared: it took up room
// from when its request was admitted until its key went, and whenever a call believed in it.
func (b *linearBuilder) silent(r *request) {
	client := b.owner(r)
	a := action{kind: "acquire", token: r.token, weight: r.parsed.weight, rev: r.admitted}
	from, last := b.seen(r.admitted), int64(0)
	if b.excuse(r) == "" {
		for _, s := range b.sharers[r] {
			from = min(from, s.From)
			if s.Confirmed && s.To <= r.goneAt { // checker belief judges the others
				last = max(last, s.To)
			}
		}
	}
	b.add(client, a, b.notBefore(r.admitted), from)
	if r.gone != never {
		a.kind, a.rev = "end", r.gone
		b.add(client, a, max(last, b.notBefore(r.gone)), r.goneAt)
	}
}

// calledLimits adds the limits as their callers saw them.
func (b *linearBuilder) calledLimits() {
	for i := range b.view.ops {
		op := &b.view.ops[i]
		if op.Call.Name != history.SetLimit || op.Call.Gate != b.name || op.Outcome() == history.Fail {
			continue
		}
		a := action{kind: "limit", limit: op.Call.Limit, known: true, maybe: op.Outcome() == history.Unknown}
		to := op.Ended()
		if a.maybe {
			to = never
		}
		b.add(op.Call.Client, a, op.Call.At, to)
	}
}
