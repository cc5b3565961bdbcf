package life

import (
	"context"
	"iter"
)

// Hold is the Handle of a permit or of a run of a job: when that is lost, so is the right to the work under it, which is work
// with a ctx that is derived from the context of the life, or from that of Around.
type Hold interface {
	Handle
	// Lost reports whether a cause of the life's end is a loss, and not the end that its holder has given it.
	Lost(cause error) bool
}

type lifeKey struct{}

// under is the value of a ctx under a life.
type under struct {
	life  *Life           // nil for that of Apart
	outer context.Context // in which the life began
}

// Around returns a child of ctx for work under the life. It does not end with that.
func (l *Life) Around(ctx context.Context) context.Context { return &around{ctx, l} }

type around struct {
	context.Context
	life *Life
}

// Value implements context.Context.
func (a *around) Value(key any) any {
	if u := a.life.under(a.Context, key); u != nil {
		return u
	}
	return a.Context.Value(key)
}

// under returns the value for a key of a ctx for work under the life that is derived from outer, and nil if the key is not
// lifeKey.
func (l *Life) under(outer context.Context, key any) any {
	if key != (lifeKey{}) {
		return nil
	}
	return &under{l, outer}
}

// Apart returns a child of ctx for a call that is no part of the work under which ctx runs: Trusts yields nothing of that. The
// loss of a hold concerns it as before.
func Apart(ctx context.Context) context.Context { return apart{ctx} }

type apart struct{ context.Context }

// Value implements context.Context.
func (a apart) Value(key any) any {
	if key == (lifeKey{}) {
		return &under{nil, a.Context}
	}
	return a.Context.Value(key)
}

// all yields what ctx runs under, and where a call is apart from that, the innermost first.
func all(ctx context.Context) iter.Seq[*under] {
	return func(yield func(*under) bool) {
		for u, ok := ctx.Value(lifeKey{}).(*under); ok && yield(u); u, ok = u.outer.Value(lifeKey{}).(*under) {
		}
	}
}

// lives yields what ctx runs under, the innermost first.
func lives(ctx context.Context) iter.Seq[*under] {
	return func(yield func(*under) bool) {
		for u := range all(ctx) {
			if u.life != nil && !yield(u) {
				return
			}
		}
	}
}

// Trusts yields the trust of each life under which ctx runs and that has not ended, be its handle a Hold or not, the innermost
// first, as far as Apart.
func Trusts(ctx context.Context) iter.Seq[Trust] {
	return func(yield func(Trust) bool) {
		for u := range all(ctx) {
			if u.life == nil || u.life.Cause() == nil && !yield(u.life.trust) {
				return
			}
		}
	}
}

// Holds yields the holds under which ctx runs, the innermost first, also those that have ended.
func Holds(ctx context.Context) iter.Seq[Hold] {
	return func(yield func(Hold) bool) {
		for u := range lives(ctx) {
			if h, ok := u.life.handle.(Hold); ok && !yield(h) {
				return
			}
		}
	}
}

// AfterLoss calls lost with the cause, in a goroutine of its own, when a hold is lost under which ctx runs, until stop is
// called. The end of ctx has no part in it.
func AfterLoss(ctx context.Context, lost func(cause error)) (stop func()) {
	var stops []func() bool
	for u := range lives(ctx) {
		h, ok := u.life.handle.(Hold)
		if !ok {
			continue
		}
		stops = append(stops, context.AfterFunc(u.life.ending(), func() {
			if cause := u.life.Cause(); h.Lost(cause) {
				lost(cause)
			}
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ending returns a context that ends when the life does, and not before, as that of the life may: with its parent.
func (l *Life) ending() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.over = &over{}
		l.over.ctx, l.over.finish = context.WithCancel(context.Background())
		if l.cause != nil {
			l.over.finish()
		}
	}
	return l.over.ctx
}

// over ends with a life, and not before.
type over struct {
	ctx    context.Context
	finish context.CancelFunc
}
