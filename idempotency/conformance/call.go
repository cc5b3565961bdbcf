package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// outcome is the result of a call.
type outcome struct {
	Answer
	err  error
	kind Kind
}

// start calls Do of an instance, and does not wait for its return.
func (m *member) start(ctx context.Context, r Request) <-chan outcome {
	done := make(chan outcome, 1)
	m.f.calls.Add(1)
	go func() {
		defer m.f.calls.Done()
		done <- m.call(ctx, r)
	}()
	return done
}

func (m *member) call(ctx context.Context, r Request) (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			o.err = fmt.Errorf("panic: %v", v)
		}
	}()
	if o.Answer, o.err = m.Do(ctx, r); o.err != nil {
		o.kind = m.f.store.Kind(o.err)
	}
	return o
}

// do calls Do of an instance and waits for its return, within Patience.
func (m *member) do(r Request) outcome { return m.f.returned(m.start(m.f.ctx, r)) }

// returned waits until a call returns, within Patience.
func (f *fixture) returned(done <-chan outcome) outcome {
	o := received(f, done, "a call does not return")
	if errors.Is(o.err, errors.ErrUnsupported) {
		panic(stop{o.err})
	}
	return o
}

// received waits for a value, within Patience. It fails with the text otherwise.
func received[T any](f *fixture, ch <-chan T, otherwise string) T {
	t := time.NewTimer(f.opts.Patience)
	defer t.Stop()
	select {
	case v := <-ch:
		return v
	case <-t.C:
		f.failf("%s within %v", otherwise, f.opts.Patience)
	case <-f.ctx.Done():
		f.failf("%s: %w", otherwise, context.Cause(f.ctx))
	}
	panic("not reached")
}

// wantAnswer returns the answer of a call. It fails if the call has returned an error.
func (f *fixture) wantAnswer(o outcome) Answer {
	if o.err != nil {
		f.failf("a call returned an error (%v) in place of a value: %w", o.kind, o.err)
	}
	return o.Answer
}

// wantKind fails unless a call has returned an error of that kind.
func (f *fixture) wantKind(o outcome, kind Kind) {
	switch {
	case o.err == nil:
		f.failf("the value %.40q in place of the error %q", o.Value, kind)
	case o.kind != kind:
		f.failf("an error of the kind %q in place of %q: %w", o.kind, kind, o.err)
	}
}

// wantReplay calls Do, and fails unless the call gets the recorded answer.
func (m *member) wantReplay(r Request, recorded Answer) {
	m.f.wantSame(m.f.wantAnswer(m.do(r)), recorded)
}

func (f *fixture) wantSame(got, recorded Answer) {
	switch {
	case !got.Replayed:
		f.failf("a call executed the request again after an outcome was recorded, and got %.40q", got.Value)
	case got.Value != recorded.Value:
		f.failf("a call got %.40q, want the recorded %.40q", got.Value, recorded.Value)
	case got.Attempt != recorded.Attempt || got.Token != recorded.Token:
		f.failf("a call returned attempt %d with token %d; the value was recorded by attempt %d with token %d",
			got.Attempt, got.Token, recorded.Attempt, recorded.Token)
	}
}

// work is the function of a request. It counts its runs and reports each.
type work struct {
	f          *fixture
	begun      chan running
	released   chan struct{}                              // run returns after it is closed; nil: at once
	ignoresCtx bool                                       // run does not return when its context ends
	then       func(ctx context.Context, a Attempt) error // called before run returns

	mu   sync.Mutex
	runs int
}

// running is one run of a work.
type running struct {
	handle
	ctx context.Context
}

// handle is Attempt, under a name that differs from that of its method.
type handle = Attempt

// many is more than the runs of any work.
const many = 10000

// work returns a work that returns at once.
func (f *fixture) work() *work { return &work{f: f, begun: make(chan running, many)} }

// blocked returns a work that returns after release, or when its context ends.
func (f *fixture) blocked() *work {
	k := f.work()
	k.released = make(chan struct{})
	return k
}

// run is the Func of the request.
func (k *work) run(ctx context.Context, a Attempt) (string, error) {
	k.mu.Lock()
	k.runs++
	n := k.runs
	k.mu.Unlock()
	k.begun <- running{a, ctx}
	if k.released != nil {
		ended := ctx.Done()
		if k.ignoresCtx {
			ended = nil
		}
		select {
		case <-k.released:
		case <-k.f.over:
		case <-ended:
			return "", context.Cause(ctx)
		}
	}
	if k.then != nil {
		if err := k.then(ctx, a); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("run %d", n), nil
}

// waitRunning waits until the work runs, within Patience. It fails if the call returns first; nil
// stands for any of several calls.
func (k *work) waitRunning(call <-chan outcome) running {
	t := time.NewTimer(k.f.opts.Patience)
	defer t.Stop()
	select {
	case at := <-k.begun:
		return at
	case o := <-call:
		if o.err != nil {
			k.f.failf("the function is not called; the call returned an error (%v): %w", o.kind, o.err)
		}
		k.f.failf("the function is not called; the call returned %.40q", o.Value)
	case <-t.C:
		k.f.failf("the function is not called within %v", k.f.opts.Patience)
	case <-k.f.ctx.Done():
		k.f.failf("the function is not called: %w", context.Cause(k.f.ctx))
	}
	panic("not reached")
}

// release lets a blocked work return.
func (k *work) release() { close(k.released) }

// wantRuns fails unless the work has run n times.
func (k *work) wantRuns(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs != n {
		k.f.failf("the function ran %d times, want %d", k.runs, n)
	}
}

// request returns a request with the work, for the key that most promises use.
func (k *work) request() Request {
	return Request{Scope: "tenant", Op: "operation", ID: "key", Payload: "payload", Retain: time.Minute, Func: k.run}
}
