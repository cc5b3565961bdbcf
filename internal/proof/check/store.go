package check

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Store is C1: it replays the tap, and asks of every grant whether the rule of
// admission allows it, and of every key whether it was written once and why it
// went. It needs no search: time and memory grow with the history.
//
// Its rules:
//
//	tap      the tap has seen everything, else nothing can be judged
//	limit    a permit was granted though those granted before it left no room
//	order    a permit was granted though its request was behind waiting ones
//	early    a permit was granted before it could have been admitted
//	weight   a permit was granted for a request of another weight
//	token    a token is no create revision of a key, belongs to another's request,
//	         was granted twice (but to calls that share its key), or falls from one holder of a mutex to the next
//	time     a revision contradicts the clock: it was seen before it was asked for
//	once     a request's key was written again, or shares its revision with another
//	through  the limit's record has other holders than there were
//	status   Status has returned other holders than there were
//	delete   a key was removed, and no party that may delete it had a reason
//	release  a release was confirmed, but the key existed
//	left     a key exists that has no owner
//	ghost    a request of a total exists, and the one at its key does not
//	proof    a request of a total was put while the one at its key was not admitted
//	alone    a request of a total was removed without the one at its key
type Store struct{}

// Name implements Checker.
func (Store) Name() string { return "store" }

// check implements Checker.
func (Store) check(v *view) []Finding {
	if !v.tapped {
		return []Finding{unclear("tap", "", "there is no tap")}
	}
	var f []Finding
	for _, m := range v.h.Marks(history.MarkTapGap) {
		f = append(f, unclear("tap", "", "the tap has missed something: %s", m.Error))
	}
	if len(v.h.Marks(history.MarkTapComplete)) == 0 {
		f = append(f, unclear("tap", "", "it is not known whether the tap has seen everything"))
	}
	if len(f) > 0 {
		return f
	}
	f = append(f, v.grants()...)
	f = append(f, v.tokens()...)
	f = append(f, v.writtenOnce()...)
	f = append(f, v.limits()...)
	f = append(f, v.statuses()...)
	f = append(f, v.deletes()...)
	f = append(f, v.leftOver()...)
	f = append(f, v.pairs()...)
	return f
}

// grants asks of every grant whether the rule admits its request, and early
// enough.
func (v *view) grants() (f []Finding) {
	for i := range v.spans {
		s := &v.spans[i]
		g := s.Granted
		r := v.byToken[id{g.Gate, g.Token}]
		if r == nil {
			f = append(f, bad("token", g.Gate, s.From, "%s was granted token %d, which is no create revision of a request", holder(s), g.Token))
			continue
		}
		if max(g.Weight, 1) != r.parsed.weight {
			f = append(f, bad("weight", g.Gate, s.From, "%s was granted weight %d for a request of weight %d", holder(s), g.Weight, r.parsed.weight))
		}
		switch {
		case r.admitted == 0:
			f = append(f, v.neverAdmitted(s, r))
		case v.notBefore(r.admitted) > s.From:
			f = append(f, at(r.admitted, bad("early", g.Gate, s.From, "%s was reported %s before it could be admitted, at revision %d",
				holder(s), ms(v.notBefore(r.admitted)-s.From), r.admitted)))
		}
	}
	return f
}

// neverAdmitted returns the rule that a grant broke that no revision justifies: if there is
// room at none even if only granted requests count, the limit is broken;
// else the order.
func (v *view) neverAdmitted(s *history.Span, r *request) Finding {
	g := r.gate
	best := int64(-1) // room at the best of times, beside the granted
	for _, rev := range v.changes(g, r) {
		l := g.limitAt(rev)
		if !l.known {
			continue
		}
		room := l.n - r.parsed.weight
		for _, o := range g.requests {
			if o.token < r.token && o.gone > rev && (v.spanOf[o] != nil || v.sharers[o] != nil) {
				room -= o.parsed.weight
			}
		}
		best = max(best, room)
	}
	if best >= 0 {
		return at(r.token, bad("order", g.name, s.From, "%s was granted, but was behind waiting requests, until revision %d", holder(s), r.gone))
	}
	return at(r.token, bad("limit", g.name, s.From, "%s was granted weight %d, but there was no room for it at any revision until %s",
		holder(s), r.parsed.weight, revision(r.gone)))
}

// changes returns the revisions in a request's life at which its queue changed.
func (v *view) changes(g *gate, r *request) (revs []int64) {
	for _, st := range g.states {
		if st.rev >= r.token && st.rev < r.gone {
			revs = append(revs, st.rev)
		}
	}
	return revs
}

// tokens checks what does not depend on admission.
func (v *view) tokens() (f []Finding) {
	last, seen := map[string]*history.Span{}, map[id]*history.Span{}
	for i := range v.spans {
		s := &v.spans[i]
		k := id{s.Granted.Gate, s.Granted.Token}
		if o := seen[k]; o != nil && !(v.shares(o) && v.shares(s)) {
			f = append(f, bad("token", k.gate, s.From, "token %d was granted to %s and to %s", k.token, holder(o), holder(s)))
			continue
		}
		seen[k] = s
		r := v.byToken[k]
		if r == nil {
			continue
		}
		if owner := v.owner(r); v.shares(s) && owner != s.Granted.Client {
			f = append(f, bad("token", k.gate, s.From, "%s was granted token %d, which belongs to a request of %s", holder(s), k.token, owner))
		}
		if client, op, ok := history.ParseTag(r.rec.Note); ok && (client != s.Granted.Client || op != s.Granted.Op) {
			f = append(f, bad("token", k.gate, s.From, "%s was granted token %d, which belongs to the request of %s", holder(s), k.token, r.rec.Note))
		}
		if !s.Confirmed || r.gate.fixed != 1 {
			continue
		}
		if o := last[k.gate]; o != nil && o.Granted.Token > k.token && v.struck(r) == nil && r.how != withNotice {
			f = append(f, bad("token", k.gate, s.From, "%s holds token %d after %s held %d", holder(s), k.token, holder(o), o.Granted.Token))
		}
		last[k.gate] = s
	}
	for _, name := range v.names() {
		for _, r := range v.gates[name].requests {
			if op := v.opOf[r]; op != nil && op.Call.At > r.putAt {
				f = append(f, at(r.token, bad("time", name, op.Call.At, "%s: its key was seen %s before it was asked for", v.name(r), ms(op.Call.At-r.putAt))))
			}
		}
	}
	return f
}

// writtenOnce: rank depends on what never changes.
func (v *view) writtenOnce() (f []Finding) {
	for _, name := range v.names() {
		for _, r := range v.gates[name].requests {
			for _, rev := range r.again {
				if v.tampered(r.key, rev) != nil {
					f = append(f, at(rev, excused("once", name, r.putAt, "%s: a nemesis wrote its key again", v.name(r))))
				} else {
					f = append(f, at(rev, bad("once", name, r.putAt, "%s: its key was written again", v.name(r))))
				}
			}
			if r.twins {
				f = append(f, at(r.token, bad("once", name, r.putAt, "%s: another request was created at the same revision", v.name(r))))
			}
			if v.layout.presence && r.lease != r.parsed.lease && v.tampered(r.key, r.token) == nil {
				f = append(f, at(r.token, bad("once", name, r.putAt, "%s: it hangs on lease %x, not on the one in its name", v.name(r), r.lease)))
			}
		}
	}
	return f
}

// limits: the record of a limit shows later readers which requests had been admitted.
func (v *view) limits() (f []Finding) {
	for _, name := range v.names() {
		g := v.gates[name]
		for _, l := range g.limits {
			switch {
			case !l.known:
			case l.own.record.Through > l.above:
				f = append(f, at(l.rev, bad("through", name, l.at, "the limit of %d says that all up to token %d had been admitted, but that was only %d", l.n, l.own.record.Through, l.above)))
			case l.hidden != 0:
				finding := at(l.rev, bad("through", name, l.at, "the limit of %d hides that token %d had been admitted", l.n, l.hidden))
				if v.byToken[id{name, l.hidden}].admitted <= v.restored(g, l.rev) {
					finding.Level = Excused // a nemesis deleted the record that showed it
				}
				f = append(f, finding)
			}
		}
	}
	return f
}

// statuses compares what Status has returned with what there was: N is the weight of
// the holders, at revision Rev.
func (v *view) statuses() (f []Finding) {
	for _, op := range v.ops {
		r := op.Return
		if r == nil || r.Name != history.Status || r.Outcome != history.OK || r.Rev == 0 || r.Rev > v.through {
			continue
		}
		st, exact, forgotten := state{}, true, false
		if g := v.gates[r.Gate]; g != nil {
			st = g.stateAt(r.Rev)
			l := g.limitAt(r.Rev)
			exact = l.known && !l.unsettled()
			forgotten = v.forgets(g, r.Rev)
		}
		if r.N < st.held && !forgotten || exact && r.N > st.held {
			f = append(f, at(r.Rev, bad("status", r.Gate, r.At, "%s read that %d are held, but that was %d", r.Client, r.N, st.held)))
		}
	}
	return f
}

// restored returns the last revision before rev at which a limit that a nemesis had
// deleted was stored again. Its information about earlier admissions is lost.
func (v *view) restored(g *gate, rev int64) (last int64) {
	for _, l := range g.limits {
		if l.first && l.rev <= rev && (v.named(v.prefix+g.name+"/limit") || g.base != nil && v.named(v.prefix+v.layout.limiter(g.name)+"/default")) {
			last = l.rev
		}
	}
	return last
}

// forgets reports whether a holder was admitted before that.
func (v *view) forgets(g *gate, rev int64) bool {
	restored := v.restored(g, rev)
	for _, r := range g.requests {
		if r.admitted != 0 && r.admitted <= restored && r.gone > rev {
			return true
		}
	}
	return false
}

func at(rev int64, f Finding) Finding {
	f.Rev = rev
	return f
}

// holder names the holder of a span.
func holder(s *history.Span) string {
	return fmt.Sprintf("%s (call %d)", s.Granted.Client, s.Granted.Op)
}

func revision(rev int64) string {
	if rev == never {
		return "the end"
	}
	return fmt.Sprintf("revision %d", rev)
}
