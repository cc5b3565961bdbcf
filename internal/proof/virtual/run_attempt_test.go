package virtual

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The run of a job is unlocked, and its function is in a Do: the attempt's context ends with the run's loss as its cause, also
// once the ctx of the run has ended otherwise (A380 in internal/proof/tested-failures.md). It ran on beside the run of the next
// tick.
func TestAttemptUnderALostRun(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprintf("its caller has left: %v", leaves), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				jobs, store := on[0].locker(), on[0].storeOf(idempotency.Options{})
				caller, leave := context.WithCancel(t.Context())
				defer leave()
				_, err := jobs.Do(caller, "nightly", func(ctx context.Context, _ *schedlock.Run) error {
					_, err := idempotency.Do(ctx, store, order("1"), "payload", func(work context.Context, _ *idempotency.Attempt) (int, error) {
						if leaves {
							leave()
							<-ctx.Done()
						}
						require.NoError(t, jobs.Unlock(t.Context(), "nightly", "test"))
						<-work.Done()
						require.ErrorIs(t, context.Cause(work), schedlock.ErrUnlocked, "MaxExecution ends it, too, but later")
						return 0, context.Cause(work)
					})
					return err
				}, fireTime(1))
				require.ErrorIs(t, err, schedlock.ErrUnlocked)
				next := started(t, store, order("1"))
				require.Equal(t, 2, next.Attempt())
				require.NoError(t, next.Release(t.Context()))
			})
		})
	}
}
