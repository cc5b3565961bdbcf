package concurrency

import "context"

// within is the context of work under a permit.
type within struct {
	context.Context
	permit *Permit
}

type withinKey struct{}

// Value returns the context itself for withinKey.
func (w *within) Value(key any) any {
	if key == (withinKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// FromContext returns the permit of a Limiter under which ctx runs, and false if there is none: in a
// function given to Limit, or to Do of a semaphore that a Limiter returned, in Permit.Context of such
// a semaphore's permit, and in contexts from NewContext. Of nested ones it returns the innermost. The
// permit may have ended. A Semaphore without a Limiter, a Mutex and an Election put no permit into a
// context by themselves.
func FromContext(ctx context.Context) (*Permit, bool) {
	if w, ok := ctx.Value(withinKey{}).(*within); ok {
		return w.permit, true
	}
	return nil, false
}

// NewContext returns a child of ctx in which FromContext finds the permit: for work under a permit
// that was acquired with another context than Permit.Context. It does not end with the permit. If p
// is nil, it returns ctx.
func NewContext(ctx context.Context, p *Permit) context.Context {
	if p == nil {
		return ctx
	}
	return &within{ctx, p}
}

// source is what a permit of a Limiter is of: the default of a KeyedLimiter, or the queue of a Single.
type source any

// nested returns an error if a context has a permit of the same limiter that has not ended. Calls
// that each hold one permit and wait for a second one would wait for each other.
func nested(ctx context.Context, of source) error {
	if of == nil {
		return nil
	}
	for {
		w, ok := ctx.Value(withinKey{}).(*within)
		if !ok {
			return nil
		}
		if p := w.permit; p.source == of && p.Err() == nil {
			return invalid("the context has a permit of this limiter already, %q (token %d): two calls that hold one permit each could wait for each other; to take a second permit all the same, pass a context without the first", p.queue.name, p.token)
		}
		ctx = w.Context
	}
}
