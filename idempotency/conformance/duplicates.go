package conformance

import (
	"context"
	"strings"
	"time"
)

// noWait is a Request.Wait of a call that does not wait for an attempt in progress.
var noWait = new(time.Duration)

func oneExecution(f *fixture) {
	fleet := []*member{f.open(), f.open(), f.open()}
	k := f.blocked()
	var calls []<-chan outcome
	for n := range 24 {
		calls = append(calls, fleet[n%3].start(f.ctx, k.request()))
	}
	k.waitRunning(nil)
	k.release()
	var outcomes []outcome
	for _, c := range calls {
		outcomes = append(outcomes, f.returned(c))
	}
	k.wantRuns(1)
	var ran, all []Answer
	for _, o := range outcomes {
		a := f.wantAnswer(o)
		all = append(all, a)
		if !a.Replayed {
			ran = append(ran, a)
		}
	}
	if len(ran) != 1 {
		f.failf("%d of %d calls report that they have executed the request, want 1", len(ran), len(all))
	}
	for _, a := range all {
		if a.Replayed {
			f.wantSame(a, ran[0])
		}
	}
}

func replay(f *fixture) {
	a, b := f.open(), f.open()
	k := f.work()
	first := f.wantAnswer(a.do(k.request()))
	if first.Replayed || first.Attempt != 1 || first.Token == 0 {
		f.failf("the first call reports: replayed %v, attempt %d, token %d", first.Replayed, first.Attempt, first.Token)
	}
	for _, m := range []*member{a, b, f.open()} {
		for range 2 {
			m.wantReplay(k.request(), first)
		}
	}
	a.close()
	b.wantReplay(k.request(), first)
	f.open().wantReplay(k.request(), first)
	k.wantRuns(1)
}

func wait(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	k, other := f.blocked(), f.work()
	first := a.start(f.ctx, k.request())
	k.waitRunning(first)
	r, now := other.request(), other.request()
	now.Wait = noWait
	r.Wait = new(200 * time.Millisecond)
	begun := time.Now()
	f.wantKind(b.do(r), InProgress)
	if took := time.Since(begun); took < *r.Wait {
		f.failf("a call that may wait for %v does not wait: it has ended after %v", *r.Wait, took)
	}
	f.wantKind(b.do(now), InProgress)
	r.Wait = nil
	waiting := c.start(f.ctx, r)
	ctx, cancel := context.WithCancel(f.ctx)
	gone := b.start(ctx, r)
	cancel()
	if o := f.returned(gone); o.err == nil || o.kind != Other {
		f.failf("a call whose context has ended gets %q, %v", o.Value, o.err)
	}
	f.wantKind(b.do(now), InProgress)
	f.wantKind(c.do(now), InProgress)
	k.release()
	done := f.wantAnswer(f.returned(first))
	f.wantSame(f.wantAnswer(f.returned(waiting)), done)
	b.wantReplay(other.request(), done)
	other.wantRuns(0)
	k.wantRuns(1)
}

func noWaiting(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	k, other := f.blocked(), f.work()
	first := a.start(f.ctx, k.request())
	k.waitRunning(first)
	r := other.request()
	r.Wait = noWait
	for range 2 {
		for _, m := range []*member{b, c, a} {
			f.wantKind(m.do(r), InProgress)
		}
	}
	k.release()
	done := f.wantAnswer(f.returned(first))
	for _, m := range []*member{b, c, a} {
		m.wantReplay(r, done)
	}
	other.wantRuns(0)
	k.wantRuns(1)
}

func mismatch(f *fixture) {
	a, b := f.open(), f.open()
	k, other := f.blocked(), f.work()
	first := a.start(f.ctx, k.request())
	k.waitRunning(first)
	r := other.request()
	r.Payload, r.Wait = "another payload", noWait
	// The error is not InProgress: a retry would not help the caller.
	f.wantKind(b.do(r), Mismatch)
	f.wantKind(a.do(r), Mismatch)
	k.release()
	done := f.wantAnswer(f.returned(first))
	for _, m := range []*member{b, a, f.open()} {
		f.wantKind(m.do(r), Mismatch)
		m.wantReplay(other.request(), done)
		f.wantKind(m.do(r), Mismatch)
	}
	other.wantRuns(0)

	r = other.request()
	r.ID = "another key"
	if f.wantAnswer(b.do(r)).Replayed {
		f.failf("another key with the same payload gets the outcome of the first key")
	}
	other.wantRuns(1)
}

func scopes(f *fixture) {
	a, b := f.open(), f.open()
	keys := []Request{ // several of them are equal if the parts are simply joined
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
	for n := range keys {
		k := f.blocked()
		works = append(works, k)
		keys[n].Payload, keys[n].Retain = strings.Repeat("x", n), time.Minute
		key := keys[n]
		key.Func, key.Wait = k.run, noWait
		calls = append(calls, a.start(f.ctx, key))
		k.waitRunning(calls[n]) // while all others are in progress
	}
	for n, k := range works {
		k.release()
		done := f.wantAnswer(f.returned(calls[n]))
		again := keys[n]
		again.Func = k.run
		b.wantReplay(again, done)
		k.wantRuns(1)
	}
}

func invalidKey(f *fixture) {
	a := f.open()
	before := len(f.keys())
	k := f.work()
	r := k.request()
	r.ID = ""
	f.wantKind(a.do(r), Invalid)
	k.wantRuns(0)
	if after := len(f.keys()); after != before {
		f.failf("a malformed request has left %d keys", after-before)
	}
}
