package idempotency

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/life"
)

// underHolds calls the function of an attempt. While it runs, the attempt's context ends when a permit or a run of a job is
// lost under which ctx runs: also after ctx has ended, as with a client that has left.
func underHolds(ctx context.Context, attempt *life.Life, fn func() ([]byte, error)) ([]byte, error) {
	defer life.AfterLoss(ctx, attempt.Interrupt)()
	return fn()
}
