package conformance

import (
	"context"
	"errors"
	"strings"
)

// fails makes a function that is held, and then returns an error.
func (w *world) fails(err error) *work {
	k := w.held()
	k.then = func(context.Context, Attempt) error { return err }
	return k
}

func errorFreesTheKey(w *world) {
	a, b := w.open(), w.open()
	broken := errors.New("broken")
	k, next := w.fails(broken), w.work()
	first := a.start(w.ctx, k.request())
	k.begins(first)
	waiting := b.start(w.ctx, next.request())
	k.goOn()
	if o := w.returned(first); !errors.Is(o.err, broken) {
		w.failf("the function's error is %q, %v", o.Value, o.err)
	}
	// Who waited has waited for nothing, and has to do it himself.
	done := w.answer(w.returned(waiting))
	if done.Replayed {
		w.failf("an error is replayed as the value %.40q", done.Value)
	}
	a.replays(next.request(), done)
	k.ran(1)
	next.ran(1)
}

func errorRemembered(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	declined := errors.New("the card was declined")
	k, next := w.fails(declined), w.work()
	r := k.request()
	r.Remember = true
	first := a.start(w.ctx, r)
	k.begins(first)
	waiting := b.start(w.ctx, next.request())
	k.goOn()
	if o := w.returned(first); !errors.Is(o.err, declined) {
		w.failf("the function's error is %q, %v", o.Value, o.err)
	}
	told := []outcome{w.returned(waiting)}
	for _, m := range []*member{c, b, a} {
		told = append(told, m.do(next.request()))
	}
	for _, o := range told {
		w.told(o, Failed)
		if !strings.Contains(o.err.Error(), declined.Error()) {
			w.failf("the failure is not returned: %w", o.err)
		}
	}
	k.ran(1)
	next.ran(0)
}

func panics(w *world) {
	a, b := w.open(), w.open()
	k, next := w.work(), w.work()
	k.then = func(context.Context, Attempt) error { panic("of the function") }
	mine, refused := k.request(), k.request()
	refused.ID, refused.Refuse = "refused", true
	for _, r := range []Request{mine, refused} {
		if o := w.returned(a.start(w.ctx, r)); o.err == nil {
			w.failf("a panic is returned as the value %.40q", o.Value)
		}
	}
	mine.Func, refused.Func = next.run, next.run
	for _, m := range []*member{b, a} {
		w.told(m.do(refused), Unknown)
	}
	next.ran(0)
	done := w.answer(b.do(mine))
	if done.Replayed || done.Attempt != 2 {
		w.failf("after a panic a call gets: replayed %v, attempt %d", done.Replayed, done.Attempt)
	}
	a.replays(mine, done)
	next.ran(1)
	k.ran(2)
}

func callerGoesAway(w *world) {
	a, b := w.open(), w.open()
	k, next := w.held(), w.work()
	ctx, cancel := context.WithCancel(w.ctx)
	first := a.start(ctx, k.request())
	at := k.begins(first)
	cancel()
	r := next.request()
	r.Reject = true
	w.told(b.do(r), InProgress)
	if at.ctx.Err() != nil {
		w.failf("the work is ended with its caller: %w", context.Cause(at.ctx))
	}
	waiting := b.start(w.ctx, next.request())
	k.goOn()
	got := w.answer(w.returned(waiting))
	if !got.Replayed || got.Token != at.Token() {
		w.failf("the work's outcome is lost with its caller: a call ran and got %.40q", got.Value)
	}
	w.returned(first)
	k.ran(1)
	next.ran(0)
}
