package check

import "github.com/etcdkit/etcdkit/internal/proof/history"

// ids returns by which tokens a permit's requests are known, that by which etcd guards it first. A
// permit of a limiter with a total has the token of its request there. The one at its key counts too.
func (v *view) ids(gate string, token int64) []id {
	total := v.totalOf(gate)
	if total == nil {
		return []id{{gate, token}}
	}
	ids := []id{{total.name, token}}
	if t := v.byToken[ids[0]]; t != nil && t.of != nil && t.of.gate.name == gate {
		ids = append(ids, id{gate, t.of.token})
	}
	return ids
}

// levels returns a belief in a permit as one at each level.
func (v *view) levels(s history.Span) (spans []history.Span) {
	for _, id := range v.ids(s.Granted.Gate, s.Granted.Token) {
		s.Granted.Gate, s.Granted.Token = id.gate, id.token
		spans = append(spans, s)
	}
	return spans
}

// pairs: a request of a total is the record of an admission at its key, and both go together.
func (v *view) pairs() (f []Finding) {
	for _, name := range v.names() {
		for _, k := range v.gates[name].requests {
			if t := k.next; t != nil && t.gone < k.gone && v.struck(t) == nil && !copied(k) {
				f = append(f, at(t.gone, bad("alone", t.gate.name, t.goneAt, "%s was removed, but %s of %s was not", v.name(t), v.name(k), name)))
			}
		}
		if !isTotal(name) {
			continue
		}
		for _, t := range v.gates[name].requests {
			switch k := t.of; {
			case v.tampered(t.key, t.token) != nil:
			case k == nil:
				f = append(f, at(t.token, bad("ghost", name, t.putAt, "%s: no request at a key has its name, weight and place", v.name(t))))
			case t.gone > k.gone && v.struck(k) == nil:
				f = append(f, at(k.gone, bad("ghost", name, k.goneAt, "%s exists after %s of %s has gone", v.name(t), v.name(k), k.gate.name)))
			case !t.proven:
				f = append(f, at(t.token, bad("proof", name, t.putAt, "%s was put while %s was not admitted by the limit of %s", v.name(t), v.name(k), k.gate.name)))
			}
		}
	}
	return f
}

// copied reports whether a request is the same as an earlier one that had gone by then: etcd got the Txn of that twice,
// as from a client that did not see its answer. No call of its session knows of it, so the session takes its slot for
// free, and the next request of that slot cannot be written: the session takes that back, with what has its name in the
// total, and queues on another slot.
func copied(r *request) bool {
	for _, o := range r.gate.requests {
		if o.token < r.token && o.gone <= r.token && o.key == r.key && o.lease == r.lease && o.rec.Nonce == r.rec.Nonce {
			return true
		}
	}
	return false
}

// obstructed reports whether a copy had the name of a key's request in the total until that went.
func (v *view) obstructed(r *request) bool {
	total := v.totalOf(r.gate.name)
	if total == nil {
		return false
	}
	for _, t := range total.requests {
		if t.lease == r.lease && t.parsed.slot == r.parsed.slot && t.token < r.token && t.gone >= r.gone && copied(t) {
			return true
		}
	}
	return false
}

// disproved reports whether the admission of a key's request may have ended before it joined the
// total, since a limit was changed in its life: then its call withdraws it, and asks anew.
func (v *view) disproved(r *request) bool {
	if v.totalOf(r.gate.name) == nil {
		return false
	}
	for _, l := range r.gate.limits {
		if l.rev > r.token && l.rev <= r.gone {
			return true
		}
	}
	return false
}
