package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// outcome is what a call has returned.
type outcome struct {
	Answer
	err  error
	kind Kind
}

// start calls an instance, which is not waited for.
func (m *member) start(ctx context.Context, r Request) <-chan outcome {
	done := make(chan outcome, 1)
	m.w.calls.Add(1)
	go func() {
		defer m.w.calls.Done()
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
		o.kind = m.w.store.Kind(o.err)
	}
	return o
}

// do calls an instance.
func (m *member) do(r Request) outcome { return m.w.returned(m.start(m.w.ctx, r)) }

// returned waits until a call returns.
func (w *world) returned(done <-chan outcome) outcome {
	o := received(w, done, "a call does not return")
	if errors.Is(o.err, errors.ErrUnsupported) {
		panic(stop{o.err})
	}
	return o
}

// received waits for something that has to happen.
func received[T any](w *world, ch <-chan T, otherwise string) T {
	t := time.NewTimer(w.opts.Patience)
	defer t.Stop()
	select {
	case v := <-ch:
		return v
	case <-t.C:
		w.failf("%s within %v", otherwise, w.opts.Patience)
	case <-w.ctx.Done():
		w.failf("%s: %w", otherwise, context.Cause(w.ctx))
	}
	panic("not reached")
}

// answer is for a call that has to have an answer.
func (w *world) answer(o outcome) Answer {
	if o.err != nil {
		w.failf("an error in place of a value (%v): %w", o.kind, o.err)
	}
	return o.Answer
}

// told is for a call that has to end with that kind of error.
func (w *world) told(o outcome, kind Kind) {
	switch {
	case o.err == nil:
		w.failf("the value %.40q in place of the error %q", o.Value, kind)
	case o.kind != kind:
		w.failf("an error of the kind %q in place of %q: %w", o.kind, kind, o.err)
	}
}

// replays is for a call that has to get what was recorded.
func (m *member) replays(r Request, recorded Answer) {
	m.w.same(m.w.answer(m.do(r)), recorded)
}

func (w *world) same(got, recorded Answer) {
	switch {
	case !got.Replayed:
		w.failf("a call ran where an outcome was recorded, and got %.40q", got.Value)
	case got.Value != recorded.Value:
		w.failf("a call got %.40q where %.40q was recorded", got.Value, recorded.Value)
	case got.Attempt != recorded.Attempt || got.Token != recorded.Token:
		w.failf("a call returned attempt %d with token %d; the value is that of attempt %d with token %d",
			got.Attempt, got.Token, recorded.Attempt, recorded.Token)
	}
}

// work is a function of which the suite sees when it runs.
type work struct {
	w     *world
	begun chan running
	let   chan struct{} // it returns when this is closed; nil: at once
	deaf  bool          // it does not heed its context
	then  func(ctx context.Context, a Attempt) error

	mu   sync.Mutex
	runs int
}

// running is one run of it.
type running struct {
	handle
	ctx context.Context
}

// handle is the Attempt under a name that is not its method's.
type handle = Attempt

// many is more often than any work runs.
const many = 10000

// work makes a function that returns at once.
func (w *world) work() *work { return &work{w: w, begun: make(chan running, many)} }

// held makes a function that returns when it is let, or its context ends.
func (w *world) held() *work {
	k := w.work()
	k.let = make(chan struct{})
	return k
}

// run is the function.
func (k *work) run(ctx context.Context, a Attempt) (string, error) {
	k.mu.Lock()
	k.runs++
	n := k.runs
	k.mu.Unlock()
	k.begun <- running{a, ctx}
	if k.let != nil {
		heard := ctx.Done()
		if k.deaf {
			heard = nil
		}
		select {
		case <-k.let:
		case <-k.w.over:
		case <-heard:
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

// begins waits until it runs, for a call that does not return before; nil for one of many.
func (k *work) begins(call <-chan outcome) running {
	t := time.NewTimer(k.w.opts.Patience)
	defer t.Stop()
	select {
	case at := <-k.begun:
		return at
	case o := <-call:
		if o.err != nil {
			k.w.failf("the function is not called, but (%v): %w", o.kind, o.err)
		}
		k.w.failf("the function is not called, and the result is %.40q", o.Value)
	case <-t.C:
		k.w.failf("the function is not called within %v", k.w.opts.Patience)
	case <-k.w.ctx.Done():
		k.w.failf("the function is not called: %w", context.Cause(k.w.ctx))
	}
	panic("not reached")
}

// goOn lets it return.
func (k *work) goOn() { close(k.let) }

// ran checks how often it ran.
func (k *work) ran(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs != n {
		k.w.failf("the function ran %d times, where %d was right", k.runs, n)
	}
}

// request is a call with the work, and the one key that most promises need.
func (k *work) request() Request {
	return Request{Scope: "tenant", Op: "operation", ID: "key", Payload: "payload", Retain: time.Minute, Func: k.run}
}
