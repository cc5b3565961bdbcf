package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// Calls of Wait that end before there is a token are calls: a process that makes them keeps its
// share, also where the rate gives less than one token a minute, and takes the tokens in time.
func TestRateOfCallsThatEnd(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		var k takers
		l := on[0].rate(0.01, 1)
		for begun := time.Now(); time.Since(begun) < 20*time.Minute; time.Sleep(1700 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			err := l.Wait(ctx)
			if err == nil {
				k.took(0)
			} else {
				require.ErrorIs(t, err, concurrency.ErrRateExceeded)
			}
			cancel()
		}
		require.GreaterOrEqual(t, len(k.spans), 11)
		require.NoError(t, check.Rate(k.spans, 0.01, 1))
	})
}
