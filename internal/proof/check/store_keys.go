package check

import (
	"cmp"
	"slices"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// deletes asks of every request that went why, and of every confirmed release
// whether the key went.
func (v *view) deletes() (f []Finding) {
	for _, name := range v.names() {
		for _, r := range v.gates[name].requests {
			if why := v.unexplained(r); why != "" {
				f = append(f, at(r.gone, bad("delete", name, r.goneAt, "%s: %s", v.name(r), why)))
			}
			for _, op := range v.releases[id{name, r.token}] {
				if op.Outcome() != history.OK {
					continue
				}
				if r.gone == never {
					f = append(f, at(r.token, bad("release", name, op.Return.At, "%s: its release was confirmed, but its key exists", v.name(r))))
				} else if late := v.notBefore(r.gone) - op.Return.At; late > 0 {
					f = append(f, at(r.gone, bad("release", name, op.Return.At, "%s: its release was confirmed %s before its key can have gone", v.name(r), ms(late))))
				}
			}
		}
	}
	return append(f, v.presences()...)
}

// unexplained returns what is wrong with how a request's key went, or "".
func (v *view) unexplained(r *request) string {
	if r.how == exists || v.struck(r) != nil || r.of != nil && v.struck(r.of) != nil || r.next != nil && v.struck(r.next) != nil {
		return ""
	}
	if l := v.leases[r.lease]; r.gone != never && (v.struckLease(r.lease, r.gone) != nil || l != nil && l.loose) {
		return "" // its session knew that it is lost, and has revoked the lease itself
	}
	switch r.how {
	case withLease:
		return "" // a lease may end at any time; checker belief asks whether its holder knew
	case withNotice:
		if !v.taken(r) {
			return "it was taken away (" + r.notice.Cause + "), but no call has asked for that"
		}
		return ""
	case disowned:
		return "it was written again without a lease"
	}
	if v.believedAtEnd(r) {
		return "it was deleted while a holder believed in it, one of several that shared the key"
	}
	span, op := v.spanOf[r], v.opOf[r]
	switch {
	case span != nil && v.released(r) <= r.goneAt:
		if v.disputed(r) {
			return "it was deleted, and its release returned that it did not do that"
		}
		return ""
	case span != nil:
		// MaxHold ends a permit by itself, and word of that may come late: its own
		// deadline counts. A holder that has not looked at the permit before its end knows no
		// deadline, and did not believe in it.
		e := span.Ended
		switch {
		case e == nil && span.Until > 0 && span.Until <= addTime(r.goneAt, slip):
			return "" // its process was killed before it recorded that
		case e == nil:
		case e.At <= r.goneAt && e.Cause != history.Released, e.Until > 0 && e.Until <= addTime(r.goneAt, slip),
			e.Cause == history.HeldTooLong && !span.Confirmed:
			return ""
		}
		return "it was deleted while its holder believed in it, and before it was released"
	case cmp.Or(r.of, r).asked: // its session withdraws it, also if etcd has admitted it and the session does not know that yet
		return ""
	case op != nil && op.Outcome() == history.OK && op.Call.Name == history.Acquire && v.again(r, op):
		return "it was deleted while its caller waited, and the caller queued again"
	}
	return "" // its caller had given up, or was refused
}

// disputed reports whether a release returned that the key was gone before, although
// nothing else ended the permit. If trust in the lease ended before the release
// returned, or the lease itself soon after, or the session was closed meanwhile, that
// was the reason: the holder learned that while it waited for etcd.
func (v *view) disputed(r *request) bool {
	ops := v.releases[id{r.gate.name, r.token}]
	l, span := v.leases[r.lease], v.spanOf[r]
	if len(ops) != 1 || ops[0].Outcome() != history.Fail || l == nil || l.goneAt < addTime(ops[0].Return.At, v.ttl) {
		return false
	}
	client := v.lease[l.id]
	for _, c := range slices.Concat(v.closers[client], v.deaths[client]) {
		if c.Call.Lease == l.id && c.Call.At <= ops[0].Return.At {
			return false
		}
	}
	e := span.Ended
	return e != nil && e.Cause == history.Released && (e.Until == 0 || e.Until > addTime(ops[0].Return.At, slip))
}

// slip is by how much two readings of one clock in one process may differ that
// were not taken at once.
const slip = int64(10_000_000)

// taken reports whether a call has asked for the removal of a request.
func (v *view) taken(r *request) bool {
	k := cmp.Or(r.of, r)
	for _, op := range slices.Concat(v.takers[k.gate.name], v.takers[v.layout.total(k.gate.name)]) {
		c := &op.Call
		if c.At > r.goneAt {
			continue
		}
		ofKey := c.Gate == k.gate.name
		switch {
		case c.Name != history.EvictToken:
			if ofKey && c.ID == k.rec.ID && c.ID != "" {
				return true
			}
		case ofKey && c.Token == k.token, k.next != nil && c.Token == k.next.token: // either token will do
			return true
		}
	}
	return false
}

// again reports whether the call of a request made another on the same lease.
func (v *view) again(r *request, op *history.Op) bool {
	for _, o := range v.madeBy[op] {
		if o.gate == r.gate && o.lease == r.lease && o.token > r.token && !v.disproved(cmp.Or(r.of, r)) && !v.obstructed(r) {
			return true
		}
	}
	return false
}

// presences: a presence key goes with its lease, and with nothing but it. One that
// was overwritten by hand is on no lease any more.
func (v *view) presences() (f []Finding) {
	for _, l := range v.leases {
		if l.gone == never || l.loose {
			continue
		}
		for _, g := range v.gates {
			for _, r := range g.requests {
				if r.lease == l.id && r.token < l.gone && r.gone > l.gone && v.struckLease(l.id, l.gone) == nil {
					f = append(f, at(l.gone, bad("delete", g.name, l.goneAt, "%s exists after the presence key of its lease %x has gone", v.name(r), l.id)))
				}
			}
		}
	}
	return f
}

// leftOver finds the keys that exist when they should not.
func (v *view) leftOver() (f []Finding) {
	for _, phase := range []struct {
		mark  string
		kinds []keyKind
	}{
		{history.MarkIdle, []keyKind{keyRequest, keyID}},
		{history.MarkDrained, []keyKind{keyRequest, keyID, keyAlive, keyNotice, keyStop}},
	} {
		for _, m := range v.h.Marks(phase.mark) {
			rev, ok := v.tappedBefore(m.At)
			if !ok {
				f = append(f, unclear("tap", "", "the tap was not completed before the mark %q", phase.mark))
				continue
			}
			for _, k := range v.keysAt(rev) {
				for _, kind := range phase.kinds {
					if k.parsed.kind == kind && !v.planted(k) && !v.widowed(k) {
						f = append(f, at(k.created, bad("left", k.parsed.gate, m.At, "%s: %q exists and belongs to no request", phase.mark, k.name)))
					}
				}
			}
		}
	}
	return f
}

// planted reports whether a nemesis has written a key since it was created.
func (v *view) planted(k *liveKey) bool {
	for _, n := range v.tampering[v.prefix+k.name] {
		if n.End >= v.notBefore(k.created) {
			return true
		}
	}
	return false
}

// widowed reports whether a key is that of an ID whose request was deleted by hand: it
// stays until the lease ends, or another call uses the ID.
func (v *view) widowed(k *liveKey) bool {
	r := v.byToken[id{k.parsed.gate, k.created}]
	return k.parsed.kind == keyID && r != nil && v.struck(r) != nil
}

// tappedBefore returns the revision up to which the tap had last been completed
// before a time.
func (v *view) tappedBefore(at int64) (rev int64, ok bool) {
	for _, m := range v.h.Marks(history.MarkTapComplete) {
		if m.At <= at {
			rev, ok = m.Rev, true
		}
	}
	return rev, ok
}
