package idempotency

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A350: the room below a part of a quota has the right sign for each quota that fits.
func TestRoomWithin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		part           float64
		quota, in, out int64
	}{
		{0.9, 1000, 100, 800},
		{0.9, 1000, 1000, -100},
		{1, 1000, 1000, 0},
		{1, math.MaxInt64, 1000, math.MaxInt64 - 1000},
		{math.SmallestNonzeroFloat64, math.MaxInt64, 1000, -1000},
	} {
		require.Equal(t, tt.out, roomWithin(tt.part, tt.quota, tt.in), "%v", tt)
	}
	require.Positive(t, roomWithin(math.Nextafter(1, 0), math.MaxInt64, 1000))
}
