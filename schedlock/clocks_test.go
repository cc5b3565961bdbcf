package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that has not read the other clocks yet knows no slowest clock: it could trim
// what is the future of the others.
func TestSlowestClockOfAnUnreadFleet(t *testing.T) {
	t.Parallel()
	c := &clocks{now: time.Now}
	_, ok := c.slowest(1)
	require.False(t, ok)
	c.Reset(nil, 1)
	_, ok = c.slowest(1)
	require.True(t, ok, "it is alone")
}
