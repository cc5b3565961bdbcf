package conformance

import (
	"context"
	"errors"
	"strings"
)

// fails returns a blocked work that returns an error after release.
func (f *fixture) fails(err error) *work {
	k := f.blocked()
	k.then = func(context.Context, Attempt) error { return err }
	return k
}

func errorReleasesTheKey(f *fixture) {
	a, b := f.open(), f.open()
	broken := errors.New("broken")
	k, next := f.fails(broken), f.work()
	first := a.start(f.ctx, k.request())
	k.waitRunning(first)
	waiting := b.start(f.ctx, next.request())
	k.release()
	if o := f.returned(first); !errors.Is(o.err, broken) {
		f.failf("want the error of the function; got %q, %v", o.Value, o.err)
	}
	// The waiting call executes the request itself.
	done := f.wantAnswer(f.returned(waiting))
	if done.Replayed {
		f.failf("an error is replayed as the value %.40q", done.Value)
	}
	a.wantReplay(next.request(), done)
	k.wantRuns(1)
	next.wantRuns(1)
}

func errorRemembered(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	declined := errors.New("the card was declined")
	k, next := f.fails(declined), f.work()
	r := k.request()
	r.Remember = true
	first := a.start(f.ctx, r)
	k.waitRunning(first)
	waiting := b.start(f.ctx, next.request())
	k.release()
	if o := f.returned(first); !errors.Is(o.err, declined) {
		f.failf("want the error of the function; got %q, %v", o.Value, o.err)
	}
	outcomes := []outcome{f.returned(waiting)}
	for _, m := range []*member{c, b, a} {
		outcomes = append(outcomes, m.do(next.request()))
	}
	for _, o := range outcomes {
		f.wantKind(o, Failed)
		if !strings.Contains(o.err.Error(), declined.Error()) {
			f.failf("the recorded failure is not in the error: %w", o.err)
		}
	}
	k.wantRuns(1)
	next.wantRuns(0)
}

func panics(f *fixture) {
	a, b := f.open(), f.open()
	k, next := f.work(), f.work()
	k.then = func(context.Context, Attempt) error { panic("of the function") }
	mine, refused := k.request(), k.request()
	refused.ID, refused.Refuse = "refused", true
	for _, r := range []Request{mine, refused} {
		if o := f.returned(a.start(f.ctx, r)); o.err == nil {
			f.failf("a panic is returned as the value %.40q", o.Value)
		}
	}
	mine.Func, refused.Func = next.run, next.run
	for _, m := range []*member{b, a} {
		f.wantKind(m.do(refused), Unknown)
	}
	next.wantRuns(0)
	done := f.wantAnswer(b.do(mine))
	if done.Replayed || done.Attempt != 2 {
		f.failf("after a panic a call got: replayed %v, attempt %d", done.Replayed, done.Attempt)
	}
	a.wantReplay(mine, done)
	next.wantRuns(1)
	k.wantRuns(2)
}

func callerDisconnects(f *fixture) {
	a, b := f.open(), f.open()
	k, next := f.blocked(), f.work()
	ctx, cancel := context.WithCancel(f.ctx)
	first := a.start(ctx, k.request())
	at := k.waitRunning(first)
	cancel()
	r := next.request()
	r.Wait = noWait
	f.wantKind(b.do(r), InProgress)
	if at.ctx.Err() != nil {
		f.failf("the end of the caller's context has ended the work: %w", context.Cause(at.ctx))
	}
	waiting := b.start(f.ctx, next.request())
	k.release()
	got := f.wantAnswer(f.returned(waiting))
	if !got.Replayed || got.Token != at.Token() {
		f.failf("the end of the caller's context has lost the outcome: a call executed the request again and got %.40q", got.Value)
	}
	f.returned(first)
	k.wantRuns(1)
	next.wantRuns(0)
}
