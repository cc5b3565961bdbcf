package check

import (
	"cmp"
	"slices"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Fence is C3: effects on registers that permits protect.
//
// In mode guard the register is a key in the same etcd, written by a Txn on the
// permit's guard. Its rules:
//
//	guard     a write was accepted at a revision at which its permit's key did not
//	          exist, or was not admitted
//	falls     two writes under a mutex were accepted, the later with the smaller token
//	refused   a write was refused although the permit's key existed all the time
//
//	shown     a call was granted a key after another had used its token or guard: a write of
//	          the former holder that is late would be accepted
//
// In mode token the register refuses a smaller token than the greatest it has seen.
// That is right for a mutex only. Its rules: falls and refused, as above.
//
// A write whose answer was lost was accepted if the tap saw it.
type Fence struct{}

// Name implements Checker.
func (Fence) Name() string { return "fence" }

// check implements Checker.
func (Fence) check(v *view) []Finding {
	return v.registers(func(gate string) bool { return !isJob(gate) })
}

// registers checks the effects under those permits.
func (v *view) registers(of func(gate string) bool) (f []Finding) {
	registers := map[string][]history.Event{}
	var names []string
	for _, e := range v.h.Events {
		if e.Kind == history.KindEffect && of(e.Gate) {
			name := e.Attr["register"]
			if registers[name] == nil {
				names = append(names, name)
			}
			registers[name] = append(registers[name], e)
		}
	}
	for _, name := range names {
		f = append(f, v.register(name, registers[name])...)
		f = append(f, v.shown(registers[name])...)
	}
	return f
}

func (v *view) register(name string, effects []history.Event) (f []Finding) {
	var accepted []history.Event
	for _, e := range effects {
		if e.Attr["mode"] == history.ModeGuard && e.Outcome == history.Unknown {
			e = v.resolve(e)
		}
		r := v.byToken[v.ids(e.Gate, e.Token)[0]]
		switch {
		case e.Outcome == history.Fail:
			if r != nil && v.stoodAt(r, e.At) {
				f = append(f, bad("refused", e.Gate, e.At, "%s was refused by register %q in mode %s with token %d, although its key existed", e.Client, name, e.Attr["mode"], e.Token))
			}
		case e.Outcome == history.OK:
			accepted = append(accepted, e)
			if e.Attr["mode"] == history.ModeGuard {
				f = append(f, v.guarded(name, e, r)...)
			}
		}
	}
	return append(f, v.falls(name, accepted)...)
}

// resolve finds out from the tap what became of a write whose answer was lost.
func (v *view) resolve(e history.Event) history.Event {
	for _, p := range v.others {
		if p.key == e.Attr["register"] && p.value == e.Attr["value"] {
			e.Outcome, e.Rev = history.OK, p.rev
		}
	}
	return e
}

// guarded checks one accepted write on a guard.
func (v *view) guarded(name string, e history.Event, r *request) []Finding {
	switch {
	case r == nil:
		if !v.tapped {
			return nil
		}
		return []Finding{at(e.Rev, bad("guard", e.Gate, e.At, "%s wrote register %q with token %d, which is no request's", e.Client, name, e.Token))}
	case e.Rev < r.token || e.Rev >= v.guardEnds(r):
		return []Finding{at(e.Rev, bad("guard", e.Gate, e.At, "%s wrote register %q with token %d, whose key existed until %s", e.Client, name, e.Token, revision(r.gone)))}
	case r.admitted == 0 || e.Rev < r.admitted:
		return []Finding{at(e.Rev, bad("guard", e.Gate, e.At, "%s wrote register %q with token %d before that was admitted", e.Client, name, e.Token))}
	}
	return nil
}

// guardEnds returns the revision from which a guard fails: that at which the key
// went or was written again.
func (v *view) guardEnds(r *request) int64 {
	end := r.gone
	for _, rev := range r.again {
		end = min(end, rev)
	}
	return end
}

// stoodAt reports whether it is certain that a request's key existed, as it was created,
// until the effect's outcome was known.
func (v *view) stoodAt(r *request, now int64) bool {
	if len(r.again) > 0 || v.struck(r) != nil {
		return false
	}
	switch r.how {
	case exists:
		return true
	case plain:
		released := v.released(r)
		return released != never && now < released && v.spanOf[r] != nil && now <= v.spanOf[r].To
	}
	return false
}

// falls checks that the tokens of a mutex's accepted writes never fall: in the
// order of revisions, or in the register's own.
func (v *view) falls(name string, accepted []history.Event) (f []Finding) {
	order := func(e history.Event) int64 { return cmp.Or(e.Rev, e.N) }
	slices.SortStableFunc(accepted, func(a, b history.Event) int { return cmp.Compare(order(a), order(b)) })
	var last *history.Event
	for i := range accepted {
		e := &accepted[i]
		if v.layout.fixed(e.Gate) != 1 {
			continue
		}
		if last != nil && e.Token < last.Token {
			f = append(f, at(e.Rev, bad("falls", e.Gate, e.At, "register %q took token %d of %s after token %d of %s", name, e.Token, e.Client, last.Token, last.Client)))
		}
		last = e
	}
	return f
}
