package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/idempotency/internal/unclaimed"
)

// openError is the error of a request that may run without a claim, since Options.FailOpen is set.
type openError struct {
	error
	run unclaimed.Run
}

func (e *openError) Unwrap() error { return e.error }

// openFor returns the run that an error of Begin has, and nil if it has none or the client has left: then it ends.
func openFor(left, err error) unclaimed.Run {
	open, ok := errors.AsType[*openError](err)
	switch {
	case !ok:
		return nil
	case left != nil:
		open.run.End()
		return nil
	}
	return open.run
}

// RunUnclaimed calls a handler without a claim, since Refuse has allowed it after err, which it reports as such. The handler's
// context is like that of an attempt: it does not end with ctx. The Client is of the context client, as of NewClient.
func (r Refusal) RunUnclaimed(ctx, client context.Context, err error, report func(error), handler func(ctx context.Context, c Client)) {
	defer r.Open.End()
	report(fmt.Errorf("the handler runs without a claim (Options.FailOpen): %w", err))
	own, stop := r.Open.Start(ctx)
	defer stop()
	c, release := NewClient(own, client)
	defer release()
	handler(own, c)
}
