// Package undone is how a middleware that refuses a request before its handler is called says to the attempt around
// it that nothing was done. The two know nothing else of each other. It is for HTTP alone: an interceptor of gRPC gets a
// function, which does not show what it calls, and one between the two may have called the handler before, as a retry does.
package undone

import (
	"context"
	"sync/atomic"
)

// Handler is an http.Handler that may refuse a request before it calls another handler. Only one that is called
// directly by the middleware of the attempt may say that nothing was done: what is between them may have done something.
type Handler interface{ RefusesBefore() }

// Is reports whether an http.Handler is a Handler.
func Is(next any) bool {
	_, is := next.(Handler)
	return is
}

// Word is what was said of one call of a handler. It is safe for concurrent use.
type Word struct{ said, begun atomic.Bool }

type wordKey struct{}

// With returns a context in which it can be said that nothing was done.
func With(ctx context.Context) (context.Context, *Word) {
	w := &Word{}
	return context.WithValue(ctx, wordKey{}, w), w
}

// Said reports whether it was said.
func (w *Word) Said() bool { return w.said.Load() }

// Say says that nothing was done, unless a handler has begun.
func Say(ctx context.Context) {
	if w, ok := ctx.Value(wordKey{}).(*Word); ok && !w.begun.Load() {
		w.said.Store(true)
	}
}

// Begin is called before a handler that may do something.
func Begin(ctx context.Context) {
	if w, ok := ctx.Value(wordKey{}).(*Word); ok {
		w.begun.Store(true)
	}
}
