package middleware

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/undone"
)

// Refusable returns a context for a call of next, in which a middleware behind this one can report that it has refused the
// request and called no handler. refused returns nothingDone if that middleware is next, and otherwise what the log of an
// unknown outcome says of it: what is between may have done something.
func Refusable(ctx context.Context, next any) (_ context.Context, refused func() (nothingDone bool, because string)) {
	ctx, call := undone.With(ctx, next)
	return ctx, func() (bool, string) {
		if call.Between() {
			return false, between
		}
		return call.Undone(), ""
	}
}

const between = ", since a limit of limithttp has refused the request and called no handler; what is between it and the Middleware may have done something: put the limit directly behind the Middleware, or with nothing but an http.ServeMux between, or in front of it"
