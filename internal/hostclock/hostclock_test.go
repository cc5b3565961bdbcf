package hostclock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/hostclock"
)

func TestClock(t *testing.T) {
	t.Parallel()
	const exact = int64(time.Millisecond)
	before, wall, after := hostclock.Now(), time.Now(), hostclock.Now()
	time.Sleep(10 * time.Millisecond)
	at := hostclock.At(wall)
	require.GreaterOrEqual(t, at, before-exact)
	require.LessOrEqual(t, at, after+exact)
	require.Greater(t, hostclock.Now()-before, int64(9*time.Millisecond))
	require.Zero(t, hostclock.At(time.Time{}))
}
