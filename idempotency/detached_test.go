package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// TestAttemptDetachedFromAPermit: a handler releases its permit, and what it has started with context.WithoutCancel continues
// (A371 in internal/proof/tested-failures.md). The attempt found the permit in its ctx, and was interrupted: the step did not
// run, and its request was left as lost.
func TestAttemptDetachedFromAPermit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
	require.NoError(t, err)
	begun, released, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	require.NoError(t, lim.Key("acme").Do(ctxT(t), func(ctx context.Context, _ *concurrency.Permit) error {
		go func() {
			_, err := idempotency.Do(context.WithoutCancel(ctx), in.Store, key("1"), "payload", func(_ context.Context, at *idempotency.Attempt) (int, error) {
				close(begun)
				<-released
				for _, step := range []string{"one", "two"} { // an interruption comes by a goroutine
					if _, err := idempotency.Step(at, step, func(context.Context) (int, error) { return 1, nil }); err != nil {
						return 0, err
					}
				}
				return 7, context.Cause(at.Context())
			})
			done <- err
		}()
		closed(t, begun, "the attempt")
		return nil
	}))
	close(released)
	require.NoError(t, got(t, done, "the end of the attempt"))
	require.Equal(t, "7", string(replayed(t, in, key("1")).Value))
}
