package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// simIdem is an idempotency key of the reference model.
type simIdem struct {
	gate    string
	last    *simTry // whose record is in force, or nil
	state   string  // of the record
	until   int64   // it may expire then
	holder  *simTry // that is in progress, or nil
	waiting []*simTry
	cached  *simTry // an outcome that has gone
}

// How long the model keeps records: short, so that many go in one history.
const (
	simRetain  = 200 * time.Microsecond
	simUnknown = 400 * time.Microsecond
)

func (k *simIdem) finished() bool {
	return k.last != nil && (k.state == record.AttemptDone || k.state == record.AttemptFailed)
}

// noted notes what the record says now, and for how long it does.
func (s *sim) noted(k *simIdem, state string, d time.Duration) {
	k.state, k.holder, k.until = state, nil, s.now+int64(d)
}

// goes notes that the record has gone.
func (k *simIdem) goes() {
	if k.finished() {
		k.cached = k.last
	}
	k.last, k.state = nil, ""
}

// requestStep is something that happens to an idempotency key.
func (s *sim) requestStep() {
	if s.asked == nil {
		for n := range 3 {
			s.asked = append(s.asked, &simIdem{gate: simRequest[:len(simRequest)-1] + fmt.Sprint(n)})
		}
	}
	k := s.asked[s.pick(len(s.asked))]
	s.mayExpire(k)
	if lost := k.last != nil && k.holder == nil && k.state == record.AttemptWorking; lost && s.pick(3) == 0 {
		s.resolves(k)
		return
	}
	switch s.pick(24) {
	case 0:
		if k.last != nil && k.holder == nil {
			s.deletesIt(k.gate)
			k.goes()
		}
	case 1:
		s.tampersWith(k)
	case 2, 3, 4, 5, 6, 7, 8, 9:
		s.isAskedFor(k)
	default:
		if trying := s.tryingAt(k); len(trying) > 0 {
			s.goesFurther(k, trying[s.pick(len(trying))])
		}
	}
	s.wakes(k)
}

func (s *sim) mayExpire(k *simIdem) {
	if k.last != nil && k.holder == nil && s.now > k.until {
		s.commit(change{key: k.gate, del: true})
		k.goes()
	}
}

// tryingAt returns the attempts at a key whose calls have not returned.
func (s *sim) tryingAt(k *simIdem) (some []*simTry) {
	for _, r := range s.trying {
		if r.gate == k.gate {
			some = append(some, r)
		}
	}
	return some
}

// resolves is an operator who says what became of a lost attempt.
func (s *sim) resolves(k *simIdem) {
	s.ops++
	e := history.Event{Kind: history.KindCall, Client: "admin", Op: s.ops, Name: history.RequestResolve, Gate: k.gate}
	s.emit(e)
	state := []string{record.AttemptDone, record.AttemptFailed, record.AttemptReleased}[s.pick(3)]
	k.last.byHand = true
	s.commit(change{key: k.gate, value: k.last.record(state).Encode(), lease: 6})
	s.noted(k, state, simRetain)
	e.Kind, e.Outcome = history.KindReturn, history.OK
	s.emit(e)
}

// tampersWith is a nemesis that deletes a record.
func (s *sim) tampersWith(k *simIdem) {
	key := k.gate
	if _, there := s.keys[key]; !there {
		return
	}
	s.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + key}}, func() { s.commit(change{key: key, del: true}) })
	k.goes()
	k.holder = nil
}

// isAskedFor is a new call, with another payload now and then.
func (s *sim) isAskedFor(k *simIdem) {
	payload := "p"
	if k.last != nil && s.pick(6) == 0 {
		payload = "q"
	}
	r := s.callsWith(s.pick(len(s.clients)), k.gate, payload)
	r.patient = s.pick(2) == 0
	if !s.decides(k, r) {
		k.waiting = append(k.waiting, r)
	}
}

// decides what becomes of a call, unless it has to wait.
func (s *sim) decides(k *simIdem, r *simTry) bool {
	switch {
	case k.last != nil && r.print != k.last.print:
		s.answers(r, history.Mismatch, nil)
	case k.finished() && k.state == record.AttemptFailed:
		s.answers(r, history.FailedBefore, k.last)
	case k.finished():
		s.answers(r, history.Replayed, k.last)
	case k.holder != nil && r.patient:
		return false
	case k.holder != nil:
		s.answers(r, history.InProgress, nil)
	case k.last != nil && k.state == record.AttemptWorking && k.last.refuse:
		s.answers(r, history.UnknownFate, nil)
	case k.last == nil && k.cached != nil && !k.cached.byHand && k.cached.as == record.AttemptDone && s.pick(4) == 0:
		s.answers(r, history.Replayed, k.cached)
	default:
		s.takes(k, r)
	}
	return true
}

// wakes the calls that wait, if they can continue.
func (s *sim) wakes(k *simIdem) {
	k.waiting = slices.DeleteFunc(k.waiting, func(r *simTry) bool { return s.decides(k, r) })
}

// takes is a claim, and the start of its function.
func (s *sim) takes(k *simIdem, r *simTry) {
	r.lease, r.number = r.client.lease, 1
	r.retain, r.unknown = simRetain.String(), simUnknown.String()
	r.refuse, r.with = s.pick(4) == 0, []string{"", "", WithPut, WithConflict}[s.pick(4)]
	if s.pick(6) == 0 {
		r.atMost = "60us"
	}
	if k.last != nil {
		r.number, r.steps = k.last.number+1, k.last.steps
	}
	s.claimsIt(r)
	if s.pick(8) == 0 { // its session was lost before the start
		s.commit(change{key: r.gate, value: r.before, lease: 5, del: r.before == ""})
		s.answers(r, "error", nil)
		return
	}
	s.execute(r)
	k.last, k.state, k.holder = r, record.AttemptWorking, r
	s.trying = append(s.trying, r)
}

// goesFurther takes an attempt one step further.
func (s *sim) goesFurther(k *simIdem, r *simTry) {
	mine := k.holder == r
	switch n := s.pick(8); {
	case r.as != "":
		s.settlesIt(k, r)
	case !mine && !r.ended:
		s.tryEnds(r, history.Lost) // it learns of that now
	case mine && n == 0:
		s.stillWorks(r)
	case mine && n < 4 && k.last == r:
		s.reaches(r, fmt.Sprint("step-", len(r.steps)))
	case mine && r.atMost != "1h" && n < 6:
		s.now += int64(time.Minute / 1e6)
		s.tryEnds(r, history.HeldTooLong)
		s.givesUp(r)
		s.noted(k, k.state, simUnknown)
	default:
		r.as = []string{record.AttemptDone, record.AttemptDone, record.AttemptFailed, record.AttemptReleased, NothingDone}[s.pick(5)]
		s.functionReturns(r, r.as)
	}
}

// settlesIt writes what a function has returned, unless another has taken over, and
// returns.
func (s *sim) settlesIt(k *simIdem, r *simTry) {
	s.trying = slices.DeleteFunc(s.trying, func(o *simTry) bool { return o == r })
	var more []change
	if r.with == WithPut && r.as == record.AttemptDone {
		more = append(more, r.effect())
	}
	switch {
	case k.last != r || k.state != record.AttemptWorking: // it is fenced
	case r.refuse && r.as != NothingDone && (r.as == record.AttemptReleased || r.with == WithConflict):
		s.givesUp(r)
		s.noted(k, k.state, simUnknown)
	case r.as != record.AttemptReleased && r.as != NothingDone && r.with != WithConflict:
		s.leaves(r, r.as, more...)
		s.noted(k, r.as, simRetain)
		if r.as == record.AttemptDone && s.pick(6) > 0 {
			s.answers(r, history.Ran, r)
			return
		}
	case len(r.steps) > 0:
		s.leaves(r, record.AttemptReleased)
		s.noted(k, record.AttemptReleased, simRetain)
	default:
		s.commit(change{key: k.gate, del: true})
		k.goes()
		k.holder = nil
	}
	s.answers(r, "error", nil)
}

// loseTries is what the end of a lease does to attempts. A process that could not renew knows
// before.
func (s *sim) loseTries(lease int64, known bool) {
	for _, k := range s.asked {
		r := k.holder
		if r == nil || r.lease != lease {
			continue
		}
		if known && !r.ended {
			s.tryEnds(r, history.Deadline)
		}
		if k.last == r {
			s.noted(k, k.state, simUnknown)
		}
		k.holder = nil
	}
}

// finishRequests lets all requests end, and their records expire.
func (s *sim) finishRequests() {
	for _, k := range s.asked {
		for trying := s.tryingAt(k); len(trying) > 0; trying = s.tryingAt(k) {
			s.goesFurther(k, trying[s.pick(len(trying))])
			s.wakes(k)
		}
		if k.last != nil {
			s.now = max(s.now, k.until+1)
			s.mayExpire(k)
		}
	}
}
