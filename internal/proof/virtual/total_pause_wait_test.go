package virtual

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/share"
)

// TestWaitEndsAtAPausedKey: a request that is admitted in the total leaves it if its key was paused meanwhile, and asks
// again after a moment. If its Wait ends in that moment, what refuses it is the pause (A473 in
// internal/proof/tested-failures.md: its error said that etcd had not shown the queue, which a middleware answers with 503).
func TestWaitEndsAtAPausedKey(t *testing.T) {
	t.Parallel()
	const calls = 40
	bubble(t, 2, func(t *testing.T, on []*desk) {
		other, err := concurrency.NewKeyedLimiter(on[1].session, "llm", 2*calls, &concurrency.KeyedLimiterOptions{Total: 1})
		require.NoError(t, err)
		sem := on[0].tenant(2*calls, 1)
		p := on[1].hold1(other.Key("other"))
		ends := make(chan error, calls)
		for i := range calls {
			go func() {
				_, err := sem.Acquire(t.Context(), concurrency.Wait(time.Minute+time.Duration(i)*time.Millisecond))
				ends <- err
			}()
		}
		time.Sleep(30 * time.Second)
		require.NoError(t, sem.SetLimit(t.Context(), 0))
		synctest.Wait()
		time.Sleep(30*time.Second - 5*time.Millisecond)
		require.NoError(t, p.Release(t.Context()))
		for range calls {
			err := came(t, ends, "a call")
			full, ok := errors.AsType[*concurrency.FullError](err)
			require.True(t, ok, "%v", err)
			require.NotErrorIs(t, err, share.ErrUnseen)
			if full.Level == concurrency.LevelKey {
				require.Zero(t, full.Limit, "%v", err)
				require.ErrorContains(t, err, "limit 0 (SetLimit resumes)")
			}
		}
	})
}
