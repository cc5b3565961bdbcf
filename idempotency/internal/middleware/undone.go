package middleware

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/undone"
)

// RefusesBefore reports whether a handler is a middleware that may refuse a request before it calls another handler.
func RefusesBefore(next any) bool { return undone.Is(next) }

// Refusable returns a context in which a middleware behind this one can report that it has called no handler.
// nothingDone reports whether it did.
func Refusable(ctx context.Context) (_ context.Context, nothingDone func() bool) {
	ctx, call := undone.With(ctx)
	return ctx, call.Undone
}
