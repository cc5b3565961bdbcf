package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// scene is a good history about to be spoilt.
type scene struct {
	*view
	events []history.Event
	pick   func(n int) int
}

// edit changes all events for which it is asked to.
func (s *scene) edit(which func(e *history.Event) bool, change func(e *history.Event)) (n int) {
	for i := range s.events {
		if which(&s.events[i]) {
			change(&s.events[i])
			n++
		}
	}
	return n
}

func (s *scene) drop(which func(e *history.Event) bool) (n int) {
	before := len(s.events)
	s.events = slices.DeleteFunc(s.events, func(e history.Event) bool { return which(&e) })
	return before - len(s.events)
}

// one picks one of those that fit.
func one[T any](s *scene, all []T, fits func(T) bool) (v T, ok bool) {
	var some []T
	for _, v := range all {
		if fits(v) {
			some = append(some, v)
		}
	}
	if len(some) == 0 {
		return v, false
	}
	return some[s.pick(len(some))], true
}

func (s *scene) requests() (all []*request) {
	for _, name := range s.names() {
		all = append(all, s.gates[name].requests...)
	}
	return all
}

// of reports whether an event belongs to a call, its permit included.
func of(call history.Event) func(e *history.Event) bool {
	return func(e *history.Event) bool { return e.Client == call.Client && e.Op == call.Op }
}

func isBelief(e *history.Event) bool {
	return e.Kind == history.KindGranted || e.Kind == history.KindHeld || e.Kind == history.KindEnded
}

func (s *scene) span(fits func(*history.Span, *request) bool) (*history.Span, *request, bool) {
	r, ok := one(s, s.requests(), func(r *request) bool { return s.spanOf[r] != nil && fits(s.spanOf[r], r) })
	if !ok {
		return nil, nil, false
	}
	return s.spanOf[r], r, true
}

// tapEvent finds the put or delete of a request's key.
func tapEvent(r *request, kind history.Kind) func(e *history.Event) bool {
	rev := map[history.Kind]int64{history.KindPut: r.token, history.KindDelete: r.gone}[kind]
	return func(e *history.Event) bool {
		return e.Kind == kind && e.Rev == rev && string(e.KV.Key) == r.key
	}
}

// corruption spoils a good history in one way. It returns false if it has nothing that
// can be spoilt so. One of the killers has to find it.
type corruption struct {
	name    string
	killers []string
	spoil   func(s *scene) bool
}

// corruptions spoil what a history records of permits. Those of jobs and of requests are in
// corrupt_jobs_test.go and corrupt_requests_test.go.
var corruptions = []corruption{
	{"swap two tokens", []string{"store/token"}, func(s *scene) bool {
		a, _, ok := s.span(func(*history.Span, *request) bool { return true })
		if !ok {
			return false
		}
		b, _, ok := s.span(func(b *history.Span, _ *request) bool {
			return b.Granted.Gate == a.Granted.Gate && b.Granted.Token != a.Granted.Token
		})
		if !ok {
			return false
		}
		s.edit(of(a.Granted), func(e *history.Event) { e.Token = b.Granted.Token })
		s.edit(of(b.Granted), func(e *history.Event) { e.Token = a.Granted.Token })
		return true
	}},
	{"shift a token", []string{"store/token"}, func(s *scene) bool {
		a, _, ok := s.span(func(*history.Span, *request) bool { return true })
		if ok {
			s.edit(of(a.Granted), func(e *history.Event) { e.Token += int64(1 + s.pick(3)) })
		}
		return ok
	}},
	{"grant a token twice", []string{"store/token"}, func(s *scene) bool {
		a, _, ok := s.span(func(a *history.Span, _ *request) bool { return true })
		if !ok {
			return false
		}
		op, ok := one(s, s.ops, func(op history.Op) bool {
			return op.Call.Name == history.Acquire && op.Call.Gate == a.Granted.Gate && op.Outcome() == history.Fail
		})
		if !ok {
			return false
		}
		s.granted(op, a.Granted.Token)
		return true
	}},
	{"drop the delete of a release", []string{"store/release"}, func(s *scene) bool {
		_, r, ok := s.span(func(sp *history.Span, r *request) bool { return s.confirmedRelease(r) && s.alone(r) })
		return ok && s.drop(tapEvent(r, history.KindDelete)) > 0
	}},
	{"drop a release", []string{"store/delete"}, func(s *scene) bool {
		sp, r, ok := s.span(func(sp *history.Span, r *request) bool { return s.confirmedRelease(r) })
		if !ok {
			return false
		}
		s.drop(of(s.releases[id{r.gate.name, r.token}][0].Call))
		s.drop(func(e *history.Event) bool { return e.Kind == history.KindEnded && of(sp.Granted)(e) })
		return true
	}},
	{"grant before the predecessor has released", []string{"belief/overlap", "store/early"}, func(s *scene) bool {
		sp, r, ok := s.span(func(_ *history.Span, r *request) bool { return s.predecessor(r) != nil })
		if !ok {
			return false
		}
		before := s.predecessor(r)
		s.edit(func(e *history.Event) bool {
			return of(sp.Granted)(e) && (e.Kind == history.KindGranted || e.Kind == history.KindReturn)
		}, func(e *history.Event) { e.At = before.To - 1 })
		return true
	}},
	{"grant a request that was never admitted", []string{"store/limit", "store/order"}, func(s *scene) bool {
		r, ok := one(s, s.requests(), func(r *request) bool {
			op := s.opOf[r]
			return r.admitted == 0 && !s.hasTotal(r) && op != nil && op.Outcome() == history.Fail && op.Ended() < r.goneAt && len(s.madeBy[op]) == 1
		})
		if !ok {
			return false
		}
		s.granted(*s.opOf[r], r.token)
		return true
	}},
	{"raise the weight that was granted", []string{"store/weight"}, func(s *scene) bool {
		sp, _, ok := s.span(func(*history.Span, *request) bool { return true })
		if ok {
			s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && isBelief(e) }, func(e *history.Event) { e.Weight += 1 + int64(s.pick(2)) })
		}
		return ok
	}},
	{"raise the weight that was asked for", []string{"store/limit", "store/order"}, func(s *scene) bool {
		_, r, ok := s.span(func(_ *history.Span, r *request) bool {
			return r.gate.fixed == 0 && r.parsed.weight == 1 && !s.hasTotal(r)
		})
		if !ok {
			return false
		}
		heavy := strings.Replace(r.key, "light/", "heavy/9/", 1)
		s.edit(func(e *history.Event) bool {
			return e.KV != nil && string(e.KV.Key) == r.key && e.Rev >= r.token && e.Rev <= r.gone
		},
			func(e *history.Event) { kv := *e.KV; kv.Key = history.Bytes(heavy); e.KV = &kv })
		s.edit(func(e *history.Event) bool { return of(s.spanOf[r].Granted)(e) && isBelief(e) }, func(e *history.Event) { e.Weight = 9 })
		return true
	}},
	{"lower the limit that was stored", []string{"store/limit", "store/order", "store/early"}, func(s *scene) bool {
		g := s.gates["semaphore/a"]
		if !slices.ContainsFunc(g.requests, func(r *request) bool { return s.spanOf[r] != nil }) {
			return false
		}
		return s.rewrite(func(e *history.Event) bool { return strings.HasSuffix(string(e.KV.Key), "semaphore/a/limit") }, func(r *record.Limit) { r.Limit = 0 }) > 0
	}},
	{"believe in it for longer", []string{"belief/stale"}, func(s *scene) bool {
		sp, r, ok := s.span(func(sp *history.Span, r *request) bool {
			return r.goneAt != never && s.excuse(r) == "" && sp.Ended != nil
		})
		if !ok {
			return false
		}
		s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindEnded }, func(e *history.Event) {
			e.Held, e.At = r.goneAt+1, max(e.At, r.goneAt+2)
			e.Until = 0
		})
		return true
	}},
	{"hold beyond the deadline", []string{"belief/deadline"}, func(s *scene) bool {
		sp, _, ok := s.span(func(sp *history.Span, _ *request) bool { return sp.Ended != nil })
		return ok && s.holdsTooLong(sp)
	}},
	{"ask for a key that was seen before", []string{"store/time"}, func(s *scene) bool {
		r, ok := one(s, s.requests(), func(r *request) bool { return s.opOf[r] != nil && s.opOf[r].Ended() > r.putAt+1 })
		return ok && s.edit(func(e *history.Event) bool { return of(s.opOf[r].Call)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.At = r.putAt + 1 }) > 0
	}},
	{"hold again", []string{"belief/terminal"}, func(s *scene) bool {
		sp, _, ok := s.span(func(sp *history.Span, r *request) bool { return sp.Ended != nil })
		if ok {
			e := *sp.Ended
			e.Kind, e.At = history.KindHeld, e.At+1
			s.events = append(s.events, e)
		}
		return ok
	}},
	{"write a key twice", []string{"store/once"}, func(s *scene) bool {
		r, ok := one(s, s.requests(), func(r *request) bool {
			return len(r.again) == 0 && r.gone > r.token+1 && !s.named(r.key)
		})
		if !ok {
			return false
		}
		s.events = append(s.events, history.Event{At: r.putAt, Kind: history.KindPut, Rev: r.token + 1,
			KV: &history.KV{Key: history.Bytes(r.key), Create: r.token, Version: 2, Lease: r.lease}})
		return true
	}},
	{"drop the calls that took requests away", []string{"store/delete"}, func(s *scene) bool {
		if !slices.ContainsFunc(s.requests(), func(r *request) bool {
			return r.how == withNotice && !s.excused(r)
		}) {
			return false
		}
		return s.drop(func(e *history.Event) bool { return e.Name == history.Evict }) > 0
	}},
	{"leave a request behind", []string{"store/left"}, func(s *scene) bool {
		r, ok := one(s, s.requests(), func(r *request) bool { return r.how == plain && s.alone(r) && !s.named(r.key) })
		return ok && s.drop(tapEvent(r, history.KindDelete)) > 0
	}},
	{"leave a session behind", []string{"store/left"}, func(s *scene) bool {
		last := 0
		for i, e := range s.events {
			if e.Kind == history.KindDelete && strings.HasSuffix(string(e.KV.Key), "/alive") {
				last = i
			}
		}
		s.events = slices.Delete(s.events, last, last+1)
		return true
	}},
	{"write by a guard after the key has gone", []string{"fence/guard"}, func(s *scene) bool {
		e, ok := one(s, s.h.Events, func(e history.Event) bool {
			r := s.requestOf(e)
			return e.Kind == history.KindEffect && !isJob(e.Gate) && e.Attr["mode"] == history.ModeGuard && e.Outcome == history.OK && r.gone != never
		})
		if !ok {
			return false
		}
		r := s.requestOf(e)
		s.edit(func(o *history.Event) bool { return o.Kind == history.KindEffect && o.Seq == e.Seq }, func(o *history.Event) { o.Rev = r.gone })
		return true
	}},
	{"write by a smaller token", []string{"fence/falls"}, func(s *scene) bool {
		var first, last *history.Event
		for i := range s.events {
			e := &s.events[i]
			if e.Kind == history.KindEffect && e.Attr["mode"] == history.ModeToken && e.Outcome == history.OK {
				if first == nil {
					first = e
				}
				last = e
			}
		}
		if first == nil || first.Token == last.Token {
			return false
		}
		first.N, last.N = last.N, first.N
		return true
	}},
	{"refuse a holder", []string{"fence/refused"}, func(s *scene) bool {
		e, ok := one(s, s.h.Events, func(e history.Event) bool {
			r := s.requestOf(e)
			return e.Kind == history.KindEffect && !isJob(e.Gate) && e.Outcome == history.OK && s.stoodAt(r, e.At)
		})
		if ok {
			s.edit(func(o *history.Event) bool { return o.Kind == history.KindEffect && o.Seq == e.Seq }, func(o *history.Event) { o.Outcome = history.Fail })
		}
		return ok
	}},
	{"confirm a release after the lease has ended", []string{"linear/order"}, func(s *scene) bool {
		sp, r, ok := s.span(func(sp *history.Span, r *request) bool {
			return r.how == withLease && s.excuse(r) == "" && sp.To < r.goneAt && sp.Ended != nil && s.released(r) > r.goneAt && s.released(r) != never
		})
		if !ok {
			return false
		}
		return s.edit(func(e *history.Event) bool {
			return e.Kind == history.KindReturn && e.Name == history.Release && e.Gate == sp.Granted.Gate && e.Token == r.token
		}, func(e *history.Event) { e.Outcome = history.OK }) > 0
	}},
	{"read a wrong status", []string{"store/status"}, func(s *scene) bool {
		return s.edit(func(e *history.Event) bool { return e.Kind == history.KindReturn && e.Name == history.Status },
			func(e *history.Event) { e.N-- }) > 0
	}},
	{"remember too much of a limit", []string{"store/through"}, func(s *scene) bool {
		l, ok := one(s, s.gates["semaphore/a"].limits, func(l limit) bool { return l.known && l.rev > l.above+1 })
		if !ok {
			return false
		}
		return s.rewrite(func(e *history.Event) bool { return e.Rev == l.rev }, func(r *record.Limit) { r.Through = l.above + 1 }) > 0
	}},
	{"return too late", []string{"live/late"}, func(s *scene) bool {
		op, ok := one(s, s.ops, func(op history.Op) bool { return op.Call.Name == history.Acquire })
		if !ok {
			return false
		}
		s.edit(func(e *history.Event) bool { return of(op.Call)(e) && e.Kind == history.KindCall }, func(e *history.Event) { e.Until = e.At })
		s.edit(func(e *history.Event) bool { return of(op.Call)(e) && e.Kind == history.KindReturn }, func(e *history.Event) { e.At += 3e9 })
		return true
	}},
}

// believes has a belief confirmed until then.
func (s *scene) believes(sp *history.Span, until int64) bool {
	return s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindEnded }, func(e *history.Event) {
		e.Held, e.At, e.Until = until, max(e.At, until+1), 0
	}) > 0
}

// holdsTooLong has a holder confirm what ended well before.
func (s *scene) holdsTooLong(sp *history.Span) bool {
	return s.edit(func(e *history.Event) bool { return of(sp.Granted)(e) && e.Kind == history.KindEnded }, func(e *history.Event) {
		e.Until, e.Held = max(e.Held, 1), e.Held+2*slip
		e.At = max(e.At, e.Held+1)
	}) > 0
}

// granted makes a call that failed return with a permit, which it holds until the
// end of its request.
func (s *scene) granted(op history.Op, token int64) {
	s.edit(func(e *history.Event) bool { return of(op.Call)(e) && e.Kind == history.KindReturn }, func(e *history.Event) {
		e.Outcome, e.Token, e.Cause = history.OK, token, ""
	})
	e := *op.Return
	e.Kind, e.Outcome, e.Cause, e.Token = history.KindGranted, "", "", token
	held := e
	held.Kind = history.KindEnded
	held.Held, held.Cause = e.At, history.Released
	s.events = append(s.events, e, held)
}

// confirmedRelease reports whether a request went by a release that was confirmed, and
// nothing else explains its end.
func (s *scene) confirmedRelease(r *request) bool {
	ops := s.releases[id{r.gate.name, r.token}]
	return s.spanOf[r] != nil && r.how == plain && !s.named(r.key) && !s.excused(r) &&
		len(ops) == 1 && ops[0].Outcome() == history.OK
}

// excused reports whether a nemesis may have ended a request, at its own level or the other one, or its
// session has revoked the lease.
func (s *scene) excused(r *request) bool {
	l := s.leases[r.lease]
	return s.struckLease(r.lease, r.gone) != nil || l != nil && l.loose || slices.ContainsFunc([]*request{r, r.of, r.next}, func(o *request) bool {
		return o != nil && (s.named(o.key) || s.struck(o) != nil)
	})
}

// predecessor returns whose release admitted a request that had been asked for
// before.
func (s *scene) predecessor(r *request) *history.Span {
	for _, o := range r.gate.requests {
		if o.gone == r.admitted && s.confirmedRelease(o) && s.spanOf[o].Confirmed && s.opOf[r].Call.At < s.spanOf[o].To-1 {
			return s.spanOf[o]
		}
	}
	return nil
}

// alone reports whether a key's name was never used again, on a lease that lasts to
// the end: what is left of it then is in force.
func (s *scene) alone(r *request) bool {
	for _, o := range s.requests() {
		if o != r && o.key == r.key {
			return false
		}
	}
	drained := s.h.Marks(history.MarkIdle)[0]
	return s.leases[r.lease].goneAt > drained.At
}

// enough is how many histories are spoilt in each way.
const enough = 5

// named returns the checkers of some killers.
func named(killers []string) (some []Checker) {
	for _, c := range all {
		if slices.ContainsFunc(killers, func(k string) bool { return strings.HasPrefix(k, c.Name()+"/") }) {
			some = append(some, c)
		}
	}
	return some
}

func everyCorruption() []corruption {
	return slices.Concat(corruptions, corruptionsOfKeyed, corruptionsOfTotals, corruptionsOfShared, corruptionsOfJobs, corruptionsOfRequests)
}

// TestCorruptedHistoriesAreRefused spoils random good histories in one way each. A
// named checker has to notice, wherever it happens.
func TestCorruptedHistoriesAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it judges some hundred histories: 40 s under the race detector")
	}
	t.Parallel()
	for _, c := range everyCorruption() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			spoilt := 0
			for round := 0; round < 20 && spoilt == 0; round++ { // some can be spoilt only rarely
				rapid.Check(t, func(t *rapid.T) {
					if spoilt == enough {
						return
					}
					pick := random(rapid.Uint64().Draw(t, "seed") + uint64(round))
					good := simulate(rapid.IntRange(40, 250).Draw(t, "steps"), pick)
					s := &scene{view: join(good), events: slices.Clone(good.Events), pick: pick}
					if !c.spoil(s) {
						return
					}
					h := history.Merge(&history.History{Events: s.events})
					killers := Judge(h, named(c.killers)...).Killers()
					if !slices.ContainsFunc(killers, func(k string) bool { return slices.Contains(c.killers, k) }) {
						t.Fatalf("killers %q, want one of %q\n%s", killers, c.killers, dump(h))
					}
					spoilt++
				})
			}
			require.Positive(t, spoilt, "no history could be spoilt so")
		})
	}
}

// notSpoilt are the rules that no corruption is for, each with the reason.
var notSpoilt = map[string]string{
	"store/tap":      "what the tap has missed cannot be separated from what did not happen: see TestVerdicts",
	"linear/search":  "it takes a history that is too hard: see TestVerdicts",
	"live/reported":  "the model waits for seconds at no time",
	"live/refused":   "it does not happen that no call is made at a gate for the time of a whole call",
	"live/left":      "the model waits for seconds at no time",
	"jobs/late":      "the model's jobs start at any time",
	"jobs/falls":     "effects of the model's jobs go by guards",
	"rates/exceeded": "the model has no rates: see TestGolden",
}

// TestEveryRuleIsReachedBySpoiling: what spoils random histories reaches each rule, but
// for those that are listed.
func TestEveryRuleIsReachedBySpoiling(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	for _, c := range everyCorruption() {
		for _, k := range c.killers {
			reached[k] = true
		}
	}
	for _, name := range rules(t) {
		switch why := notSpoilt[name]; {
		case reached[name] && why != "":
			t.Errorf("%s is reached, and listed as not", name)
		case reached[name]:
		case why == "":
			t.Errorf("no corruption reaches %s", name)
		default:
			t.Logf("not reached: %s: %s", name, why)
		}
	}
}
