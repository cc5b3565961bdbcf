package idempotency

import (
	"context"
	"errors"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/life"
)

// underPermits calls the function of an attempt. While it runs, the attempt's context ends when a permit is lost under which
// ctx runs. That of the innermost Limiter is watched by itself, since ctx has another cause if its client has left before.
func underPermits(ctx context.Context, attempt *life.Life, fn func() ([]byte, error)) ([]byte, error) {
	defer interruptBy(ctx, attempt)()
	if p, ok := concurrency.FromContext(ctx); ok {
		defer interruptBy(p.Context(), attempt)()
	}
	return fn()
}

// interruptBy ends the attempt's context when ctx ends by the loss of a permit, until stop is called.
func interruptBy(ctx context.Context, attempt *life.Life) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if lost := lossOfPermit(context.Cause(ctx)); lost != nil {
			attempt.Interrupt(lost)
		}
	})
}

// lossOfPermit returns the *concurrency.LostError in the cause of a ctx's end, and nil if there is none. A permit that was
// released is not lost: work that continues after that, as with context.WithoutCancel, was detached from it. The end of another
// attempt does not count, which has a claim of its own.
func lossOfPermit(cause error) error {
	if lost, ok := errors.AsType[*concurrency.LostError](cause); ok && errors.Is(lost, concurrency.ErrLost) {
		return lost
	}
	return nil
}
