package conformance

import (
	"context"
	"strings"
	"time"
)

func oneExecution(w *world) {
	fleet := []*member{w.open(), w.open(), w.open()}
	k := w.held()
	var calls []<-chan outcome
	for n := range 24 {
		calls = append(calls, fleet[n%3].start(w.ctx, k.request()))
	}
	k.begins(nil)
	k.goOn()
	var told []outcome
	for _, c := range calls {
		told = append(told, w.returned(c))
	}
	k.ran(1)
	var ran, all []Answer
	for _, o := range told {
		a := w.answer(o)
		all = append(all, a)
		if !a.Replayed {
			ran = append(ran, a)
		}
	}
	if len(ran) != 1 {
		w.failf("%d of %d calls say that they have run, where one has", len(ran), len(all))
	}
	for _, a := range all {
		if a.Replayed {
			w.same(a, ran[0])
		}
	}
}

func replay(w *world) {
	a, b := w.open(), w.open()
	k := w.work()
	first := w.answer(a.do(k.request()))
	if first.Replayed || first.Attempt != 1 || first.Token == 0 {
		w.failf("the first call says: replayed %v, attempt %d, token %d", first.Replayed, first.Attempt, first.Token)
	}
	for _, m := range []*member{a, b, w.open()} {
		for range 2 {
			m.replays(k.request(), first)
		}
	}
	a.close()
	b.replays(k.request(), first)
	w.open().replays(k.request(), first)
	k.ran(1)
}

func wait(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	k, other := w.held(), w.work()
	first := a.start(w.ctx, k.request())
	k.begins(first)
	r, now := other.request(), other.request()
	now.Reject = true
	r.Wait = 20 * time.Millisecond
	w.told(b.do(r), InProgress)
	w.told(b.do(now), InProgress)
	r.Wait = 0
	waiting := c.start(w.ctx, r)
	ctx, cancel := context.WithCancel(w.ctx)
	gone := b.start(ctx, r)
	cancel()
	if o := w.returned(gone); o.err == nil || o.kind != Other {
		w.failf("a call whose context has ended gets %q, %v", o.Value, o.err)
	}
	w.told(b.do(now), InProgress)
	w.told(c.do(now), InProgress)
	k.goOn()
	done := w.answer(w.returned(first))
	w.same(w.answer(w.returned(waiting)), done)
	b.replays(other.request(), done)
	other.ran(0)
	k.ran(1)
}

func reject(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	k, other := w.held(), w.work()
	first := a.start(w.ctx, k.request())
	k.begins(first)
	r := other.request()
	r.Reject = true
	for range 2 {
		for _, m := range []*member{b, c, a} {
			w.told(m.do(r), InProgress)
		}
	}
	k.goOn()
	done := w.answer(w.returned(first))
	for _, m := range []*member{b, c, a} {
		m.replays(r, done)
	}
	other.ran(0)
	k.ran(1)
}

func mismatch(w *world) {
	a, b := w.open(), w.open()
	k, other := w.held(), w.work()
	first := a.start(w.ctx, k.request())
	k.begins(first)
	r := other.request()
	r.Payload, r.Reject = "another payload", true
	// Not that it is in progress: to come again is of no use to him.
	w.told(b.do(r), Mismatch)
	w.told(a.do(r), Mismatch)
	k.goOn()
	done := w.answer(w.returned(first))
	for _, m := range []*member{b, a, w.open()} {
		w.told(m.do(r), Mismatch)
		m.replays(other.request(), done)
		w.told(m.do(r), Mismatch)
	}
	other.ran(0)

	r = other.request()
	r.ID = "another key"
	if w.answer(b.do(r)).Replayed {
		w.failf("another key with the same payload gets the outcome of the first")
	}
	other.ran(1)
}

func scopes(w *world) {
	a, b := w.open(), w.open()
	keys := []Request{ // by which a naive way to put them together would be fooled
		{Scope: "tenant", Op: "operation", ID: "key"},
		{Scope: "tenant 2", Op: "operation", ID: "key"},
		{Scope: "tenant", Op: "operation 2", ID: "key"},
		{Scope: "tenanto", Op: "peration", ID: "key"},
		{Scope: "tenant", Op: "operationk", ID: "ey"},
		{Scope: "tenant/operation", Op: "key", ID: "key"},
		{Scope: "tenant", Op: "operation/key", ID: "key"},
		{Scope: "operation", Op: "tenant", ID: "key"},
	}
	var works []*work
	var calls []<-chan outcome
	for n, key := range keys {
		k := w.held()
		works = append(works, k)
		keys[n].Payload, keys[n].Retain = strings.Repeat("x", n), time.Minute
		key = keys[n]
		key.Func, key.Reject = k.run, true
		calls = append(calls, a.start(w.ctx, key))
		k.begins(calls[n]) // while all others are in progress
	}
	for n, k := range works {
		k.goOn()
		done := w.answer(w.returned(calls[n]))
		again := keys[n]
		again.Func = k.run
		b.replays(again, done)
		k.ran(1)
	}
}

func invalidKey(w *world) {
	a := w.open()
	before := len(w.keys(""))
	k := w.work()
	r := k.request()
	r.ID = ""
	w.told(a.do(r), Invalid)
	k.ran(0)
	if after := len(w.keys("")); after != before {
		w.failf("a request that is none has left %d keys", after-before)
	}
}
