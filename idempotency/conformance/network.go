package conformance

import (
	"context"
	"fmt"
)

// enoughTxns is more than a request takes.
const enoughTxns = 10

func lostAnswers(w *world) {
	a, b := w.open(), w.open()
	for n := 1; n <= enoughTxns; n++ {
		k, next := w.work(), w.work()
		name := fmt.Sprintf("key %d", n)
		k.then = func(_ context.Context, at Attempt) error {
			at.Attach(nil, w.put(name, "1"))
			return nil
		}
		r := k.request()
		r.ID = name
		a.wire.loseAnswer(n)
		first := w.returned(a.start(w.ctx, r))
		struck := a.wire.strikes()
		a.wire.loseAnswer(0)
		r.Func = next.run
		got := w.answer(b.do(r))
		switch {
		case first.err == nil:
			// The outcome was told to the caller, so it is there.
			k.ran(1)
			w.same(got, first.Answer)
			next.ran(0)
			w.puts(name, 1, fmt.Sprintf("when the answer of Txn %d was lost", n))
		case first.kind == NotRecorded || first.kind == Fenced:
			// It was told that it is on its way: b has waited for it.
			k.ran(1)
			if !got.Replayed {
				w.failf("a call ran although the outcome of another was being written")
			}
			w.puts(name, 1, fmt.Sprintf("when the answer of Txn %d was lost", n))
		default:
			// The call has failed. Then it has run nothing, and nothing is in the way.
			k.ran(0)
			w.puts(name, 0, "by a call that has failed")
		}
		if struck == 0 {
			if n == 1 {
				w.failf("the store sends no Txn with the client that it was given")
			}
			return
		}
	}
	w.failf("a request takes more than %d Txns", enoughTxns)
}

func returnedNotRecorded(w *world) {
	a, b := w.open(), w.open()
	k, next := w.held(), w.work()
	first := a.start(w.ctx, k.request())
	at := k.begins(first)
	a.wire.refuseTxns(true)
	k.goOn()
	received(w, a.wire.harmed, "the outcome is not written")
	r := next.request()
	r.Reject = true
	w.told(b.do(r), InProgress)
	waiting := b.start(w.ctx, next.request())
	a.wire.refuseTxns(false)
	got := w.answer(w.returned(waiting))
	if !got.Replayed || got.Token != at.Token() || got.Value != "run 1" {
		w.failf("a call ran, or got %.40q, after the work was done", got.Value)
	}
	if o := w.returned(first); o.err != nil && o.kind != NotRecorded {
		w.failf("the first caller got an error of the kind %q: %w", o.kind, o.err)
	}
	k.ran(1)
	next.ran(0)
}
