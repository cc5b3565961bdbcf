package idempotency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A count that takes long is made seldom: names that have expired make it long without being counted.
func TestCountsAreSpaced(t *testing.T) {
	for _, c := range []struct {
		n    int64
		took time.Duration
		want time.Duration
	}{
		{0, 0, usedLeast},
		{50, time.Microsecond, usedLeast},
		{1000, time.Millisecond, 100 * time.Millisecond},
		{1000, 30 * time.Millisecond, 600 * time.Millisecond},
		{0, 300 * time.Millisecond, 6 * time.Second},
		{10, time.Minute, usedMost},
		{1 << 62, 0, usedMost},
	} {
		assert.Equal(t, c.want, usedFor(c.n, c.took, false), "%d keys counted in %v", c.n, c.took)
	}
	assert.Equal(t, 300*time.Millisecond, usedFor(0, 300*time.Millisecond, true), "of a full scope")
	assert.Equal(t, 100*time.Millisecond, usedFor(1000, time.Millisecond, true), "of a full scope")
}
