package check

import (
	"crypto/sha256"
	hexes "encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// simTry is one call for a request, and its attempt if there is one. A scenario has one
// request.
type simTry struct {
	client   *simClient
	gate     string
	number   int
	lease    int64
	token    int64
	call, op int64
	held     int64
	ended    bool
	print    string
	refuse   bool
	steps    []record.Step
	with     string
	atMost   string
	retain   string
	unknown  string
	before   string // the record that it has replaced
	as       string // what its function has returned
	byHand   bool   // it was resolved
	patient  bool   // it waits for others
}

const simRequest = "idempotency/s/record/0123456789abcdef/0123456789012345678901234567890123456789012"

func (r *simTry) nonce() string { return fmt.Sprintf("n%d", r.call) }

func (r *simTry) record(state string) record.Attempt {
	a := record.Attempt{State: state, Number: r.number, Nonce: r.nonce(), Lease: r.lease, Owner: r.client.name, Print: []byte(r.print), Refuse: r.refuse}
	switch state {
	case record.AttemptDone, record.AttemptFailed:
		a.Token, a.Body = r.token, []byte(r.value())
		a.Size = len(a.Body)
	default:
		a.Body = record.EncodeSteps(r.steps)
	}
	if r.byHand {
		a.By = "admin"
	}
	return a
}

func (r *simTry) value() string {
	if r.byHand {
		return `"by hand"`
	}
	return `"` + r.nonce() + `"`
}

// asksFor is a call by client n, which will be attempt number.
func (s *sim) asksFor(n, number int) *simTry {
	r := s.callsWith(n, simRequest, "p")
	r.number = number
	return r
}

// callsWith is a call with a payload.
func (s *sim) callsWith(n int, gate, payload string) *simTry {
	s.ops++
	r := &simTry{client: s.clients[n], gate: gate, lease: s.clients[n].lease, call: s.ops, print: payload, atMost: "1h", retain: "1s", unknown: "2s"}
	s.emit(history.Event{Kind: history.KindCall, Client: r.client.name, Op: r.call, Name: history.RequestDo, Gate: gate, Attr: map[string]string{"payload": payload}})
	return r
}

// claimsIt puts the record that names the attempt.
func (s *sim) claimsIt(r *simTry) {
	r.before = string(s.keys[r.gate].Value)
	r.token = s.commit(change{key: r.gate, value: r.record(record.AttemptWorking).Encode(), lease: 5})
}

func (s *sim) tryEvent(r *simTry, kind history.Kind) history.Event {
	return history.Event{Kind: kind, Client: r.client.name, Op: r.op, Name: history.RequestStart, Gate: r.gate, Token: r.token}
}

// execute calls the function of a claim.
func (s *sim) execute(r *simTry) {
	s.ops++
	r.op, r.ended = s.ops, false
	e := s.tryEvent(r, history.KindCall)
	e.N, e.Attr = int64(r.number), map[string]string{"call": history.Tag(r.client.name, r.call), "retain": r.retain, "unknown": r.unknown, "atmost": r.atMost, "with": r.with}
	s.emit(e)
	e = s.tryEvent(r, history.KindReturn)
	e.Outcome = history.OK
	s.emit(e)
	s.emit(s.tryEvent(r, history.KindGranted))
	s.stillWorks(r)
}

// attempts is a call that leads to an attempt.
func (s *sim) attempts(n, number int) *simTry {
	r := s.asksFor(n, number)
	s.claimsIt(r)
	s.execute(r)
	return r
}

func (s *sim) stillWorks(r *simTry) { r.held = s.emit(s.tryEvent(r, history.KindHeld)).At }

func (s *sim) tryEnds(r *simTry, cause string) {
	r.ended = true
	e := s.tryEvent(r, history.KindEnded)
	e.Cause, e.Held = cause, r.held
	s.emit(e)
}

// functionReturns is the end of a function, which is to be recorded as that.
func (s *sim) functionReturns(r *simTry, as string) {
	if !r.ended {
		s.stillWorks(r)
		s.tryEnds(r, history.Released)
	}
	s.ops++
	e := history.Event{Kind: history.KindCall, Client: r.client.name, Op: s.ops, Name: history.Release, Gate: r.gate, Token: r.token, Attr: map[string]string{"as": as}}
	s.emit(e)
	e.Kind, e.Outcome = history.KindReturn, history.OK
	s.emit(e)
}

// records writes the outcome, together with more.
func (s *sim) records(r *simTry, more ...change) { s.leaves(r, record.AttemptDone, more...) }

// leaves writes how an attempt has ended.
func (s *sim) leaves(r *simTry, state string, more ...change) {
	s.commit(append([]change{{key: r.gate, value: r.record(state).Encode(), lease: 6}}, more...)...)
}

// givesUp writes that an attempt is lost.
func (s *sim) givesUp(r *simTry) {
	s.commit(change{key: r.gate, value: r.record(record.AttemptLost).Encode(), lease: 5})
}

// answers is the return of a call, with the value of an attempt.
func (s *sim) answers(r *simTry, cause string, of *simTry) {
	e := history.Event{Kind: history.KindReturn, Client: r.client.name, Op: r.call, Name: history.RequestDo, Gate: r.gate, Outcome: history.OK, Cause: cause}
	if of != nil {
		sum := sha256.Sum256([]byte(of.value()))
		e.Token, e.Attr = of.token, map[string]string{"sum": hexes.EncodeToString(sum[:])}
	}
	s.emit(e)
}

// finishesIt is the end of an attempt from its first to its last step.
func (s *sim) finishesIt(r *simTry, more ...change) {
	s.functionReturns(r, "done")
	s.records(r, more...)
	s.answers(r, history.Ran, r)
}

// reaches is a recovery point.
func (s *sim) reaches(r *simTry, name string) {
	r.steps = append(slices.Clone(r.steps), record.Step{Name: name, Value: []byte("1")})
	s.commit(change{key: r.gate, value: r.record(record.AttemptWorking).Encode(), lease: 5})
}

// loses is the end of an attempt's lease, of which its process knew before.
func (s *sim) loses(r *simTry) {
	s.tryEnds(r, history.Lost)
	s.expire(r.client)
}

// passes lets time pass, and the records expire whose time it was.
func (s *sim) passes(d time.Duration) {
	s.now += int64(d)
	for key := range s.keys {
		if strings.HasPrefix(key, "idempotency/") {
			s.commit(change{key: key, del: true})
		}
	}
}

func (r *simTry) effect() change {
	return change{key: "register/" + r.gate, value: fmt.Sprint(r.token)}
}

// deletesIt is an operator who deletes the record.
func (s *sim) deletesIt(gate string) {
	s.ops++
	e := history.Event{Kind: history.KindCall, Client: "admin", Op: s.ops, Name: history.RequestDelete, Gate: gate}
	s.emit(e)
	s.commit(change{key: gate, del: true})
	e.Kind, e.Outcome = history.KindReturn, history.OK
	s.emit(e)
}
