package check

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// late is when all that a scenario has recorded has expired.
const late = time.Hour

// goldenRequests are golden histories of idempotent requests.
var goldenRequests = []goldenCase{
	{"done once, and replayed", "", func(t *scenario) {
		a := t.attempts(0, 1)
		b := t.asksFor(1, 0)
		t.answers(b, history.InProgress, nil)
		c := t.asksFor(1, 0)
		t.finishesIt(a)
		t.answers(c, history.Replayed, a)
		t.answers(t.asksFor(2, 0), history.Replayed, a)
		t.passes(late)
		t.finishesIt(t.attempts(1, 1))
		t.passes(late)
	}},
	{"a lost attempt is taken over, with its recovery points", "", func(t *scenario) {
		a := t.attempts(0, 1)
		t.reaches(a, "one")
		t.loses(a)
		b := t.asksFor(1, 2)
		b.steps = a.steps
		t.claimsIt(b)
		t.execute(b)
		t.reaches(b, "two")
		t.functionReturns(a, "done") // and is fenced
		t.finishesIt(b)
		t.passes(late)
	}},
	{"a lost attempt that no process takes over records what it has done", "", func(t *scenario) {
		a := t.attempts(0, 1)
		t.loses(a)
		t.finishesIt(a)
		t.passes(late)
	}},
	{"a failed attempt gives its key free", "", func(t *scenario) {
		a := t.attempts(0, 1)
		t.functionReturns(a, "released")
		t.commit(change{key: simRequest, del: true})
		b := t.attempts(1, 1)
		t.reaches(b, "one")
		t.functionReturns(b, "released")
		t.commit(change{key: simRequest, value: b.record(record.AttemptReleased).Encode(), lease: 6})
		c := t.asksFor(2, 2)
		c.steps = b.steps
		t.claimsIt(c)
		t.execute(c)
		t.finishesIt(c)
		t.passes(late)
	}},
	{"a lost attempt whose outcome meets a conflict gives its key free", "", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.with = WithConflict
		t.claimsIt(a)
		t.execute(a)
		t.functionReturns(a, "done")
		t.loses(a)
		t.commit(change{key: simRequest, del: true})
		t.finishesIt(t.attempts(1, 1))
		t.passes(late)
	}},
	{"a claim is taken back, and the record before it exists again", "", func(t *scenario) {
		t.loses(t.attempts(0, 1))
		b := t.asksFor(1, 2)
		t.claimsIt(b)
		t.commit(change{key: simRequest, value: b.before, lease: 5})
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"a lost attempt is resolved", "", func(t *scenario) {
		a := t.attempts(0, 1)
		t.loses(a)
		t.answers(t.asksFor(1, 0), history.UnknownFate, nil)
		r := a.record(record.AttemptDone)
		r.By, r.Body = "c1", []byte(`"x"`)
		r.Size = len(r.Body)
		t.commit(change{key: simRequest, value: r.Encode(), lease: 6})
		t.passes(late)
	}},
	{"an outcome is deleted, and its key used again", "", func(t *scenario) {
		a := t.attempts(0, 1)
		t.finishesIt(a)
		t.deletesIt(simRequest)
		t.answers(t.asksFor(0, 0), history.Replayed, a) // it had it in its cache
		t.finishesIt(t.attempts(1, 1))
		t.passes(late)
	}},
	{"a record that was deleted by hand", "(requests/stale)", func(t *scenario) {
		a := t.attempts(0, 1)
		t.nemesis(history.Event{Name: "tamper", Attr: map[string]string{"key": simPrefix + simRequest}}, func() { t.commit(change{key: simRequest, del: true}) })
		t.functionReturns(a, "done") // and is fenced
		t.finishesIt(t.attempts(1, 1))
		t.passes(late)
	}},
	{"an attempt that is too long is given up", "", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.atMost = "1ms"
		t.claimsIt(a)
		t.execute(a)
		t.tryEnds(a, history.HeldTooLong)
		t.now += 2_000_000_000
		t.givesUp(a)
		t.finishesIt(t.attempts(1, 2))
		t.functionReturns(a, "done")
		t.passes(late)
	}},
	{"an effect comes with its outcome", "", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.with = WithPut
		t.claimsIt(a)
		t.execute(a)
		t.finishesIt(a, a.effect())
		t.passes(late)
	}},
	{"another payload is refused", "", func(t *scenario) {
		a := t.attempts(0, 1)
		b := t.asksFor(1, 0)
		t.last(history.KindCall).Attr["payload"] = "q"
		t.answers(b, history.Mismatch, nil)
		t.finishesIt(a)
		t.passes(late)
	}},
	{"two attempts run at a time", "requests/overlap requests/stale", func(t *scenario) {
		a := t.attempts(0, 1)
		t.drop(a.lease, "expired")
		t.open(t.clients[0])
		b := t.attempts(1, 2)
		t.stillWorks(a)
		t.stillWorks(a)
		t.tryEnds(a, history.Lost)
		t.finishesIt(b)
		t.passes(late)
	}},
	{"an attempt continues after its end", "requests/terminal", func(t *scenario) {
		a := t.attempts(0, 1)
		t.tryEnds(a, history.Lost)
		t.stillWorks(a)
		t.finishesIt(a)
		t.passes(late)
	}},
	{"an attempt continues after its deadline", "requests/deadline", func(t *scenario) {
		a := t.attempts(0, 1)
		until := t.now
		t.now += 1_000_000_000
		t.stillWorks(a)
		t.tryEnds(a, history.Lost)
		t.last(history.KindEnded).Until = until
		t.finishesIt(a)
		t.passes(late)
	}},
	{"an attempt is begun beside another", "requests/claim", func(t *scenario) {
		t.functionReturns(t.attempts(0, 1), record.AttemptReleased)
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"an attempt is begun for a session that has ended", "requests/claim", func(t *scenario) {
		a := t.asksFor(0, 1)
		t.expire(a.client)
		t.claimsIt(a)
		t.commit(change{key: simRequest, del: true})
	}},
	{"a record that cannot be read", "requests/record", func(t *scenario) {
		t.commit(change{key: simRequest, value: "garbage", lease: 9})
		t.passes(late)
	}},
	{"done again after it was done", "requests/again", func(t *scenario) {
		t.finishesIt(t.attempts(0, 1))
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"an attempt has the number of another", "requests/number", func(t *scenario) {
		t.loses(t.attempts(0, 1))
		t.finishesIt(t.attempts(1, 1))
		t.passes(late)
	}},
	{"a lost attempt is repeated that may not be", "requests/refuse", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.refuse = true
		t.claimsIt(a)
		t.execute(a)
		t.loses(a)
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"an attempt that failed is released that may not be repeated", "requests/refuse", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.refuse = true
		t.claimsIt(a)
		t.execute(a)
		t.functionReturns(a, record.AttemptReleased)
		t.leaves(a, record.AttemptReleased)
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"an attempt that may not be repeated has done nothing", "", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.refuse = true
		t.claimsIt(a)
		t.execute(a)
		t.functionReturns(a, NothingDone)
		t.leaves(a, record.AttemptReleased)
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"a lost attempt is repeated with another payload", "requests/payload", func(t *scenario) {
		t.loses(t.attempts(0, 1))
		b := t.asksFor(1, 2)
		b.print = "q"
		t.claimsIt(b)
		t.execute(b)
		t.finishesIt(b)
		t.passes(late)
	}},
	{"recovery points are forgotten", "requests/steps", func(t *scenario) {
		a := t.attempts(0, 1)
		t.reaches(a, "one")
		t.loses(a)
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"a recovery point changes", "requests/steps", func(t *scenario) {
		a := t.attempts(0, 1)
		t.reaches(a, "one")
		a.steps = nil
		t.reaches(a, "two")
		t.finishesIt(a)
		t.passes(late)
	}},
	{"an outcome changes", "requests/changed", func(t *scenario) {
		a := t.attempts(0, 1)
		t.finishesIt(a)
		a.number = 7
		t.records(a)
		t.passes(late)
	}},
	{"a zombie records its outcome, and ends the attempt after it", "requests/zombie", func(t *scenario) {
		a := t.attempts(0, 1)
		t.loses(a)
		b := t.attempts(1, 2)
		t.functionReturns(a, "done")
		t.tryEnds(b, history.Lost)
		t.records(a)
		t.answers(a, history.Ran, a)
		t.passes(late)
	}},
	{"a recovery point is lost when its attempt is released", "requests/steps", func(t *scenario) {
		a := t.attempts(0, 1)
		t.reaches(a, "one")
		t.functionReturns(a, "released")
		a.steps = nil
		t.commit(change{key: simRequest, value: a.record(record.AttemptReleased).Encode(), lease: 6})
		t.passes(late)
	}},
	{"an attempt is resolved that continues", "requests/returned requests/zombie", func(t *scenario) {
		a := t.attempts(0, 1)
		r := a.record(record.AttemptReleased)
		r.By = "c1"
		t.commit(change{key: simRequest, value: r.Encode(), lease: 6})
		t.functionReturns(a, "released")
		t.passes(late)
	}},
	{"an attempt is given up under its function", "requests/returned", func(t *scenario) {
		a := t.attempts(0, 1)
		t.tryEnds(a, history.Lost)
		t.givesUp(a)
		t.finishesIt(t.attempts(1, 2))
		t.functionReturns(a, "done")
		t.passes(late)
	}},
	{"an attempt is given up that has returned a value", "requests/returned", func(t *scenario) {
		a := t.attempts(0, 1)
		t.functionReturns(a, "done")
		t.givesUp(a)
		t.finishesIt(t.attempts(1, 2))
		t.passes(late)
	}},
	{"an outcome expires too soon", "requests/kept", func(t *scenario) {
		t.finishesIt(t.attempts(0, 1))
		t.passes(time.Second / 2)
	}},
	{"an outcome that its call has not confirmed expires soon", "", func(t *scenario) {
		a := t.attempts(0, 1)
		t.functionReturns(a, "done")
		t.records(a)
		t.emit(history.Event{Kind: history.KindReturn, Client: a.client.name, Op: a.call, Name: history.RequestDo, Gate: a.gate, Outcome: history.Fail})
		t.passes(time.Second / 2)
	}},
	{"a lost attempt is forgotten too soon", "requests/kept", func(t *scenario) {
		t.loses(t.attempts(0, 1))
		t.passes(3 * time.Second / 2)
	}},
	{"a record expires under an attempt", "requests/kept", func(t *scenario) {
		a := t.attempts(0, 1)
		t.now += int64(late)
		t.commit(change{key: simRequest, del: true})
		t.tryEnds(a, history.Lost)
		t.functionReturns(a, "released")
	}},
	{"a leader that was stopped has the lease of a record ended", "(requests/kept) (requests/stale)", func(t *scenario) {
		t.set(SettingEarly, "leader resumed")
		a := t.attempts(0, 1)
		t.nemesis(history.Event{Name: "leader resumed"}, func() { t.commit(change{key: simRequest, del: true}) })
		t.functionReturns(a, "done") // and is fenced
		t.finishesIt(t.attempts(1, 1))
		t.passes(late)
	}},
	{"what was resolved is forgotten too soon", "requests/kept", func(t *scenario) {
		a := t.attempts(0, 1)
		t.loses(a)
		a.byHand = true
		t.commit(change{key: simRequest, value: a.record(record.AttemptDone).Encode(), lease: 6})
		t.commit(change{key: simRequest, del: true})
	}},
	{"an effect is done without its outcome", "requests/with", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.with = WithPut
		t.claimsIt(a)
		t.execute(a)
		t.commit(a.effect())
		t.finishesIt(a, a.effect())
		t.passes(late)
	}},
	{"an outcome is recorded without its effect", "requests/with", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.with = WithPut
		t.claimsIt(a)
		t.execute(a)
		t.finishesIt(a)
		t.passes(late)
	}},
	{"an outcome is recorded against its condition", "requests/with", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.with = WithConflict
		t.claimsIt(a)
		t.execute(a)
		t.finishesIt(a, a.effect())
		t.passes(late)
	}},
	{"a failure is recorded with the effect of a value", "requests/with", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.with = WithPut
		t.claimsIt(a)
		t.execute(a)
		t.functionReturns(a, record.AttemptFailed)
		t.leaves(a, record.AttemptFailed, a.effect())
		t.answers(a, history.FailedBefore, a)
		t.passes(late)
	}},
	{"records stay for ever", "requests/left", func(t *scenario) { t.finishesIt(t.attempts(0, 1)) }},
	{"one claim is started twice", "requests/twice", func(t *scenario) {
		a := t.attempts(0, 1)
		t.tryEnds(a, history.Lost)
		t.execute(a)
		t.finishesIt(a)
		t.passes(late)
	}},
	{"a function is called without a claim", "requests/token", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.token = 7
		t.execute(a)
		t.functionReturns(a, "released")
	}},
	{"a function is called for a claim that was taken back", "requests/token", func(t *scenario) {
		t.loses(t.attempts(0, 1))
		b := t.attempts(1, 2)
		t.functionReturns(b, "released")
		t.commit(change{key: simRequest, value: b.before, lease: 5})
		t.passes(late)
	}},
	{"a function is called before its claim", "requests/early", func(t *scenario) {
		a := t.asksFor(0, 1)
		a.token = t.rev + 1
		t.execute(a)
		call := t.now
		t.functionReturns(a, "done")
		t.claimsIt(a)
		t.records(a)
		// The call was recorded later than the function that it called.
		for i := range t.events {
			if e := &t.events[i]; e.Kind == history.KindCall && e.Op == a.call {
				e.At = call
			}
		}
		t.answers(a, history.Ran, a)
		t.passes(late)
	}},
	{"a call returns another value than was recorded", "requests/reported", func(t *scenario) {
		a := t.attempts(0, 1)
		t.finishesIt(a)
		b := t.asksFor(1, 1)
		b.token = a.token
		t.answers(b, history.Replayed, b)
		t.passes(late)
	}},
	{"a call returns that it is recorded, and it is not", "requests/reported", func(t *scenario) {
		a := t.attempts(0, 1)
		t.functionReturns(a, "done")
		t.answers(a, history.Ran, a)
		t.expire(a.client)
		t.passes(late)
	}},
	{"a value is replayed that was deleted long ago", "requests/reported", func(t *scenario) {
		a := t.attempts(0, 1)
		t.finishesIt(a)
		t.passes(late)
		t.now += int64(late)
		t.answers(t.asksFor(1, 1), history.Replayed, a)
	}},
}
