package conformance

import (
	"context"
	"fmt"
)

// enoughTxns is more than the Txns of a request.
const enoughTxns = 10

func lostResponses(f *fixture) {
	a, b := f.open(), f.open()
	for n := 1; n <= enoughTxns; n++ {
		k, next := f.work(), f.work()
		name := fmt.Sprintf("key %d", n)
		k.then = func(_ context.Context, at Attempt) error {
			at.Attach(nil, f.put(name))
			return nil
		}
		r := k.request()
		r.ID = name
		a.conn.loseResponse(n)
		first := f.returned(a.start(f.ctx, r))
		struck := a.conn.hits()
		a.conn.loseResponse(0)
		r.Func = next.run
		got := f.wantAnswer(b.do(r))
		switch {
		case first.err == nil:
			// The caller has the outcome, so it is recorded.
			k.wantRuns(1)
			f.wantSame(got, first.Answer)
			next.wantRuns(0)
			f.wantPuts(name, 1, fmt.Sprintf("after the response of Txn %d was lost", n))
		case first.kind == NotRecorded || first.kind == Fenced:
			// The outcome was being recorded, and b has waited for it.
			k.wantRuns(1)
			if !got.Replayed {
				f.failf("a call executed the request while the outcome of another call was being recorded")
			}
			f.wantPuts(name, 1, fmt.Sprintf("after the response of Txn %d was lost", n))
		default:
			// The call has failed: its function has not run, and no claim is left.
			k.wantRuns(0)
			f.wantPuts(name, 0, "after a call that has failed")
		}
		if struck == 0 {
			if n == 1 {
				f.failf("the store sends no Txn with the client that it was given")
			}
			return
		}
	}
	f.failf("a request needs more than %d Txns", enoughTxns)
}

func returnedNotRecorded(f *fixture) {
	a, b := f.open(), f.open()
	k, next := f.blocked(), f.work()
	first := a.start(f.ctx, k.request())
	at := k.waitRunning(first)
	a.conn.refuseTxns(true)
	k.release()
	received(f, a.conn.hit, "the outcome is not being recorded")
	r := next.request()
	r.Wait = noWait
	f.wantKind(b.do(r), InProgress)
	waiting := b.start(f.ctx, next.request())
	a.conn.refuseTxns(false)
	got := f.wantAnswer(f.returned(waiting))
	if !got.Replayed || got.Token != at.Token() || got.Value != "run 1" {
		f.failf("after the work was done, a call executed the request again, or got %.40q", got.Value)
	}
	if o := f.returned(first); o.err != nil && o.kind != NotRecorded {
		f.failf("the first call returned an error of the kind %q: %w", o.kind, o.err)
	}
	k.wantRuns(1)
	next.wantRuns(0)
}
