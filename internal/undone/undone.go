// Package undone is how a middleware that refuses a request before its handler is called reports to the attempt around
// it that nothing was done. The two know nothing else of each other. It is for HTTP alone: an interceptor of gRPC gets a
// function, which does not show what it calls, and one between the two may have called the handler before, as a retry does.
package undone

import (
	"context"
	"sync/atomic"
)

// Handler is an http.Handler that may refuse a request before it calls another handler. Only one that is called
// directly by the middleware of the attempt may report that nothing was done: what is between them may have done something.
type Handler interface{ RefusesBefore() }

// Is reports whether an http.Handler is a Handler.
func Is(next any) bool {
	_, is := next.(Handler)
	return is
}

// Call is one call of a handler, and whether nothing was done in it. It is safe for concurrent use.
type Call struct {
	direct         bool
	refused, begun atomic.Bool
}

type callKey struct{}

// With returns a context for a call of next, in which a Handler can report that it has refused the request.
func With(ctx context.Context, next any) (context.Context, *Call) {
	c := &Call{direct: Is(next)}
	return context.WithValue(ctx, callKey{}, c), c
}

// Undone reports whether nothing was done: next has refused the request, as Report has reported.
func (c *Call) Undone() bool { return c.direct && c.refused.Load() }

// Between reports whether a Handler has refused a request of next, which may have done something.
func (c *Call) Between() bool { return !c.direct && c.refused.Load() }

// Report reports that a Handler has refused the request, unless a handler has begun.
func Report(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok && !c.begun.Load() {
		c.refused.Store(true)
	}
}

// Begin is called before a handler that may do something.
func Begin(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.begun.Store(true)
	}
}
