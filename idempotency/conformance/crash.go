package conformance

import (
	"context"
	"errors"
)

// guarded tells whether a Txn with the attempt's guard takes effect.
func (w *world) guarded(a Attempt) bool {
	ctx, cancel := w.soon()
	defer cancel()
	resp, err := w.etcd.Txn(ctx).If(a.Guard()).Then(w.put("guarded", "1")).Commit()
	if err != nil {
		w.failf("etcd cannot be asked: %w", err)
	}
	return resp.Succeeded
}

// later checks that one attempt is the next one after another, of the same request.
func (w *world) later(first, next Attempt) {
	switch {
	case next.Attempt() != first.Attempt()+1:
		w.failf("attempt %d comes after attempt %d", next.Attempt(), first.Attempt())
	case next.Token() <= first.Token():
		w.failf("token %d comes after token %d", next.Token(), first.Token())
	case next.ChildKey("charge") != first.ChildKey("charge"):
		w.failf("the next attempt has another child key: a third party would do its part twice")
	case next.ChildKey("charge") == next.ChildKey("ship"):
		w.failf("two purposes have one child key")
	}
}

func crashTakeOver(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	k, next := w.held(), w.work()
	first := k.begins(a.start(w.ctx, k.request()))
	if !w.guarded(first) {
		w.failf("the guard of an attempt in progress does not hold")
	}
	var calls []<-chan outcome
	for n := range 6 {
		calls = append(calls, []*member{b, c}[n%2].start(w.ctx, next.request()))
	}
	a.crash()
	second := next.begins(nil)
	w.later(first, second)
	ran := 0
	for _, call := range calls {
		got := w.answer(w.returned(call))
		if got.Attempt != second.Attempt() || got.Token != second.Token() || got.Value != "run 1" {
			w.failf("a call got %.40q of attempt %d with token %d, where attempt %d with token %d has taken over",
				got.Value, got.Attempt, got.Token, second.Attempt(), second.Token())
		}
		if !got.Replayed {
			ran++
		}
	}
	next.ran(1)
	if ran != 1 {
		w.failf("%d calls say that they have taken over, where one has", ran)
	}
	if w.guarded(first) {
		w.failf("the guard of a lost attempt holds")
	}
}

func crashRefuse(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	k, next := w.held(), w.work()
	mine, later := k.request(), k.request()
	mine.Refuse = true
	later.ID = "later"
	for _, r := range []Request{mine, later} {
		k.begins(a.start(w.ctx, r))
	}
	a.crash()
	mine, later = next.request(), next.request()
	later.ID = "later"
	for _, m := range []*member{b, c, b} {
		w.told(m.do(mine), Unknown)
	}
	later.Refuse = true
	w.told(b.do(later), Unknown)
	next.ran(0)
	later.Refuse = false
	if got := w.answer(c.do(later)); got.Replayed || got.Attempt != 2 {
		w.failf("a call that may take over gets: replayed %v, attempt %d", got.Replayed, got.Attempt)
	}
	next.ran(1)
}

func crashAfterOutcome(w *world) {
	a, b := w.open(), w.open()
	k, other := w.work(), w.held()
	done := w.answer(a.do(k.request()))
	r := other.request()
	r.ID = "other"
	other.begins(a.start(w.ctx, r)) // what it was at when it died
	a.crash()
	b.replays(k.request(), done)
	w.open().replays(k.request(), done)
	k.ran(1)
}

func slowAndDead(w *world) {
	slow, dead, b := w.open(), w.open(), w.open()
	k, lost, next := w.held(), w.held(), w.work()
	mine, r := k.request(), lost.request()
	mine.ID, r.ID = "slow", "dead"
	first := slow.start(w.ctx, mine)
	at := k.begins(first)
	before := lost.begins(dead.start(w.ctx, r))
	dead.kill()
	r.Func = next.run
	waiting := b.start(w.ctx, r)
	// Now as much time passes as it takes to be taken for dead, and the other goes on.
	w.later(before, next.begins(nil))
	w.answer(w.returned(waiting))
	mine.Func, mine.Reject = next.run, true
	w.told(b.do(mine), InProgress)
	w.told(w.open().do(mine), InProgress)
	if err := at.ctx.Err(); err != nil {
		w.failf("the attempt of a process that lives has ended: %w", context.Cause(at.ctx))
	}
	k.goOn()
	b.replays(mine, w.answer(w.returned(first)))
	next.ran(1)
}

func zombie(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	broken := errors.New("broken")
	type pair struct {
		id           string
		k, next      *work
		first, other <-chan outcome
		at           running
	}
	pairs := []*pair{{id: "returns early"}, {id: "returns late"}, {id: "fails"}}
	for _, p := range pairs {
		p.k, p.next = w.held(), w.held()
		p.k.deaf = true
		p.k.then = func(_ context.Context, at Attempt) error {
			at.Attach(nil, w.put("zombie", "1"))
			if p.id == "fails" {
				return broken
			}
			return nil
		}
		r := p.k.request()
		r.ID = p.id
		p.first = a.start(w.ctx, r)
		p.at = p.k.begins(p.first)
	}
	a.expire()
	for _, p := range pairs {
		received(w, p.at.ctx.Done(), "the context of a lost attempt does not end")
		r := p.next.request()
		r.ID = p.id
		p.other = b.start(w.ctx, r)
		w.later(p.at, p.next.begins(p.other))
		if w.guarded(p.at) {
			w.failf("the guard of a lost attempt holds")
		}
		_, err := p.at.Step("late", func(context.Context) (string, error) { return "late", nil })
		if err == nil {
			w.failf("a lost attempt records a recovery point")
		}
		late := p.id == "returns late"
		var done Answer
		finish := func() {
			p.next.goOn()
			done = w.answer(w.returned(p.other))
		}
		if late {
			finish()
		}
		p.k.goOn()
		o := w.returned(p.first)
		switch {
		case p.id != "fails":
			w.told(o, Fenced)
		case o.err == nil:
			w.failf("the function's error is gone")
		}
		if !late {
			r.Func, r.Reject = w.work().run, true
			w.told(c.do(r), InProgress) // it has given nothing free
			finish()
		}
		r.Func = w.work().run
		for _, m := range []*member{c, b, a} {
			m.replays(r, done)
		}
		if done.Token <= p.at.Token() {
			w.failf("the outcome has token %d, that of the lost attempt was %d", done.Token, p.at.Token())
		}
		p.next.ran(1)
	}
	w.puts("zombie", 0, "by a lost attempt")
}
