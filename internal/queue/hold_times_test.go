package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// N13: what is left of a hold is no half of the mean if few are held long; limit 0 divides nothing.
func TestTrapN13Residual(t *testing.T) {
	t.Parallel()
	even, uneven := &HoldTimes{}, &HoldTimes{}
	require.Zero(t, even.RetryAfter(3, 1), "nothing was held yet")
	for range 400 {
		even.Add(time.Second)
	}
	require.InDelta(t, 0.5, even.RetryAfter(0, 1).Seconds(), 0.01)
	require.InDelta(t, 1, even.RetryAfter(3, 2).Seconds(), 0.01, "four would be before it, in two places")
	require.Zero(t, even.RetryAfter(3, 0), "it is paused")
	for i := range 400 {
		d := 10 * time.Millisecond
		if i%40 == 0 {
			d = time.Minute
		}
		uneven.Add(d)
	}
	require.Greater(t, uneven.RetryAfter(0, 1), 20*time.Second, "the mean is 1.5 s, but a slot that is taken is taken for long")
}
