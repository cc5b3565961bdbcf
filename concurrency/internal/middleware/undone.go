package middleware

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/undone"
)

// NothingDone reports to an attempt around a request, if there is one, that the request was refused before its handler was
// called.
func NothingDone(ctx context.Context) { undone.Report(ctx) }

// Begins reports to it that a handler is called, unless that is a middleware that may refuse the request as well.
func Begins(ctx context.Context, next any) {
	if !undone.Is(next) {
		undone.Begin(ctx)
	}
}
