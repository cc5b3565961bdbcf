package middleware

import (
	"context"
	"errors"

	"github.com/etcdkit/etcdkit/internal/hook"
)

// Client is the context of a client's request, for the handler of an attempt: it ends when the client leaves, or
// with the attempt.
type Client struct {
	ends context.Context
	left context.Context // the client's own, which ends a moment earlier
}

// NewClient returns the Client of an attempt with the context own. Release it when the handler has returned.
func NewClient(own, client context.Context) (c Client, release func()) {
	until, timed := client.Deadline()
	ctx, cancel := own, func() {}
	if timed {
		ctx, cancel = context.WithDeadline(own, until)
	}
	ctx, leave := context.WithCancelCause(ctx)
	stop := context.AfterFunc(client, func() {
		if !timed || !errors.Is(client.Err(), context.DeadlineExceeded) {
			leave(context.Cause(client))
		}
	})
	return Client{ctx, client}, func() { stop(); leave(nil); cancel() }
}

// Ended reports whether it has ended, or is about to.
func (c Client) Ended() bool { return c.ends.Err() != nil || c.left.Err() != nil }

// Of returns the client's context, with its cause, and with the values of ctx. So a call to another service is still the attempt's, or
// its step's, and has the same key in each attempt.
func (c Client) Of(ctx context.Context) context.Context { return hook.With(c.ends, ctx) }
