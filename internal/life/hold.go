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

type holdKey struct{}

// under is the value of a ctx under a hold.
type under struct {
	life  *Life
	outer context.Context // in which the hold was got
}

// Around returns a child of ctx for work under the hold. It does not end with that.
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

// under returns the value for a key of a ctx for work under the life that is derived from outer, and nil if the key is not that
// of holds, or the life's handle no Hold.
func (l *Life) under(outer context.Context, key any) any {
	if key != (holdKey{}) {
		return nil
	}
	if _, ok := l.handle.(Hold); !ok {
		return nil
	}
	return &under{l, outer}
}

// holds yields what ctx runs under, the innermost first.
func holds(ctx context.Context) iter.Seq[*under] {
	return func(yield func(*under) bool) {
		for u, ok := ctx.Value(holdKey{}).(*under); ok && yield(u); u, ok = u.outer.Value(holdKey{}).(*under) {
		}
	}
}

// Holds yields the holds under which ctx runs, the innermost first, also those that have ended.
func Holds(ctx context.Context) iter.Seq[Hold] {
	return func(yield func(Hold) bool) {
		for u := range holds(ctx) {
			if !yield(u.life.handle.(Hold)) {
				return
			}
		}
	}
}

// AfterLoss calls lost with the cause, in a goroutine of its own, when a hold is lost under which ctx runs, until stop is
// called. The end of ctx has no part in it.
func AfterLoss(ctx context.Context, lost func(cause error)) (stop func()) {
	var stops []func() bool
	for u := range holds(ctx) {
		stops = append(stops, context.AfterFunc(u.life.ending(), func() {
			if cause := u.life.Cause(); u.life.handle.(Hold).Lost(cause) {
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
		l.over, l.finish = context.WithCancel(context.Background())
		if l.cause != nil {
			l.finish()
		}
	}
	return l.over
}
