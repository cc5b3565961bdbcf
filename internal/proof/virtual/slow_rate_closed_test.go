package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A746: the tokens of a slow rate that were left were lost if Close ended by its deadline: the next session waited for them anew.
func TestTokensThatCloseLeaves(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		const burst = 5
		d := on[0]
		require.NoError(t, d.rate(1e-4, burst).Wait(within(t, time.Minute)))
		d.acquire() // and never releases it
		begun := time.Now()
		err := d.session.Close(within(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begun), 3*time.Second+100*time.Millisecond)

		next := d.limited(t, 0)
		defer next.close(time.Second)
		rate := next.rate(1e-4, burst)
		for range burst - 1 {
			require.NoError(t, rate.Wait(within(t, time.Minute)))
		}
		require.ErrorIs(t, rate.Wait(within(t, time.Minute)), concurrency.ErrRateExceeded)
	})
}
