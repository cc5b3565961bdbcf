package idempotency

import (
	"context"
	"errors"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/life"
)

// underHolds calls the function of an attempt. While it runs, the attempt's context ends when a permit or a run of a job is
// lost under which ctx runs, also after ctx has ended, as with a client that has left; and when ctx ends by the loss of a permit
// that it did not have at the beginning, as under a share.
func underHolds(ctx context.Context, attempt *life.Life, fn func() ([]byte, error)) ([]byte, error) {
	defer afterLoss(ctx, attempt.Interrupt)()
	return fn()
}

// afterLoss calls lost with the cause when a permit or a run of a job is lost under which ctx runs, until stop is called.
func afterLoss(ctx context.Context, lost func(cause error)) (stop func()) {
	holds := life.AfterLoss(ctx, lost)
	permit := context.AfterFunc(ctx, func() {
		if cause := lossOfPermit(context.Cause(ctx)); cause != nil {
			lost(cause)
		}
	})
	return func() { permit(); holds() }
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
