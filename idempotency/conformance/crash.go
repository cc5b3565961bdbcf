package conformance

import (
	"context"
	"errors"
)

// guardHolds reports whether a Txn with the attempt's guard takes effect.
func (f *fixture) guardHolds(a Attempt) bool {
	ctx, cancel := f.bounded()
	defer cancel()
	resp, err := f.etcd.Txn(ctx).If(a.Guard()...).Then(f.put("guarded")).Commit()
	if err != nil {
		f.failf("etcd does not answer: %w", err)
	}
	return resp.Succeeded
}

// wantNext fails unless next is the next attempt after first, at the same request.
func (f *fixture) wantNext(first, next Attempt) {
	switch {
	case next.Attempt() != first.Attempt()+1:
		f.failf("attempt %d comes after attempt %d", next.Attempt(), first.Attempt())
	case next.Token() <= first.Token():
		f.failf("token %d comes after token %d", next.Token(), first.Token())
	case next.ChildKey("charge") != first.ChildKey("charge"):
		f.failf("the next attempt has another child key: the other service would execute its part twice")
	case next.ChildKey("charge") == next.ChildKey("ship"):
		f.failf("two purposes have the same child key")
	}
}

func crashTakeOver(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	k, next := f.blocked(), f.work()
	first := k.waitRunning(a.start(f.ctx, k.request()))
	if !f.guardHolds(first) {
		f.failf("the guard of an attempt in progress does not hold")
	}
	var calls []<-chan outcome
	for n := range 6 {
		calls = append(calls, []*member{b, c}[n%2].start(f.ctx, next.request()))
	}
	a.crash()
	second := next.waitRunning(nil)
	f.wantNext(first, second)
	ran := 0
	for _, call := range calls {
		got := f.wantAnswer(f.returned(call))
		if got.Attempt != second.Attempt() || got.Token != second.Token() || got.Value != "run 1" {
			f.failf("a call got %.40q of attempt %d with token %d, want that of attempt %d with token %d, which has taken over",
				got.Value, got.Attempt, got.Token, second.Attempt(), second.Token())
		}
		if !got.Replayed {
			ran++
		}
	}
	next.wantRuns(1)
	if ran != 1 {
		f.failf("%d calls report that they have taken over, want 1", ran)
	}
	if f.guardHolds(first) {
		f.failf("the guard of a lost attempt holds")
	}
}

func crashRefuse(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	k, next := f.blocked(), f.work()
	mine, later := k.request(), k.request()
	mine.Refuse = true
	later.ID = "later"
	for _, r := range []Request{mine, later} {
		k.waitRunning(a.start(f.ctx, r))
	}
	a.crash()
	mine, later = next.request(), next.request()
	later.ID = "later"
	for _, m := range []*member{b, c, b} {
		f.wantKind(m.do(mine), Unknown)
	}
	later.Refuse = true
	f.wantKind(b.do(later), Unknown)
	next.wantRuns(0)
	later.Refuse = false
	if got := f.wantAnswer(c.do(later)); got.Replayed || got.Attempt != 2 {
		f.failf("a call that may take over got: replayed %v, attempt %d", got.Replayed, got.Attempt)
	}
	next.wantRuns(1)
}

func crashAfterOutcome(f *fixture) {
	a, b := f.open(), f.open()
	k, other := f.work(), f.blocked()
	done := f.wantAnswer(a.do(k.request()))
	r := other.request()
	r.ID = "other"
	other.waitRunning(a.start(f.ctx, r)) // in progress when the process dies
	a.crash()
	b.wantReplay(k.request(), done)
	f.open().wantReplay(k.request(), done)
	k.wantRuns(1)
}

func slowAndDead(f *fixture) {
	slow, dead, b := f.open(), f.open(), f.open()
	k, lost, next := f.blocked(), f.blocked(), f.work()
	mine, r := k.request(), lost.request()
	mine.ID, r.ID = "slow", "dead"
	first := slow.start(f.ctx, mine)
	at := k.waitRunning(first)
	before := lost.waitRunning(dead.start(f.ctx, r))
	dead.kill()
	r.Func = next.run
	waiting := b.start(f.ctx, r)
	// While the lease of the dead instance expires, the slow attempt continues.
	f.wantNext(before, next.waitRunning(nil))
	f.wantAnswer(f.returned(waiting))
	mine.Func, mine.Wait = next.run, noWait
	f.wantKind(b.do(mine), InProgress)
	f.wantKind(f.open().do(mine), InProgress)
	if err := at.ctx.Err(); err != nil {
		f.failf("the attempt of a live process has ended: %w", context.Cause(at.ctx))
	}
	k.release()
	b.wantReplay(mine, f.wantAnswer(f.returned(first)))
	next.wantRuns(1)
}

func zombie(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	broken := errors.New("broken")
	type pair struct {
		id           string
		k, next      *work
		first, other <-chan outcome
		at           running
	}
	pairs := []*pair{{id: "returns early"}, {id: "returns late"}, {id: "fails"}}
	for _, p := range pairs {
		p.k, p.next = f.blocked(), f.blocked()
		p.k.ignoresCtx = true
		p.k.then = func(_ context.Context, at Attempt) error {
			at.Attach(nil, f.put("zombie"))
			if p.id == "fails" {
				return broken
			}
			return nil
		}
		r := p.k.request()
		r.ID = p.id
		p.first = a.start(f.ctx, r)
		p.at = p.k.waitRunning(p.first)
	}
	a.expire()
	for _, p := range pairs {
		received(f, p.at.ctx.Done(), "the context of a lost attempt does not end")
		r := p.next.request()
		r.ID = p.id
		p.other = b.start(f.ctx, r)
		f.wantNext(p.at, p.next.waitRunning(p.other))
		if f.guardHolds(p.at) {
			f.failf("the guard of a lost attempt holds")
		}
		_, err := p.at.Step("late", func(context.Context) (string, error) { return "late", nil })
		if err == nil {
			f.failf("a lost attempt records a recovery point")
		}
		late := p.id == "returns late"
		var done Answer
		finish := func() {
			p.next.release()
			done = f.wantAnswer(f.returned(p.other))
		}
		if late {
			finish()
		}
		p.k.release()
		o := f.returned(p.first)
		switch {
		case p.id != "fails":
			f.wantKind(o, Fenced)
		case o.err == nil:
			f.failf("the error of the function is not returned")
		}
		if !late {
			r.Func, r.Wait = f.work().run, noWait
			f.wantKind(c.do(r), InProgress) // the lost attempt has not released the key
			finish()
		}
		r.Func = f.work().run
		for _, m := range []*member{c, b, a} {
			m.wantReplay(r, done)
		}
		if done.Token <= p.at.Token() {
			f.failf("the outcome has token %d, not above %d, the token of the lost attempt", done.Token, p.at.Token())
		}
		p.next.wantRuns(1)
	}
	f.wantPuts("zombie", 0, "by a lost attempt")
}
