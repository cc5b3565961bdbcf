package record

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each time that Time returns can be written as JSON in each zone, and the others are none.
func TestTime(t *testing.T) {
	t.Parallel()
	first, last := time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC), time.Date(LastYear, 12, 31, 23, 59, 59, 999e6, time.UTC)
	for _, ms := range []int64{1, -1, 1795680000000, first.UnixMilli(), last.UnixMilli()} {
		at := Time(ms)
		require.Equal(t, ms, at.UnixMilli())
		for _, zone := range []int{-14, 0, 14} {
			_, err := json.Marshal(at.In(time.FixedZone("", zone*3600)))
			require.NoError(t, err, "%d in zone %d", ms, zone)
		}
	}
	for _, ms := range []int64{0, first.Add(-time.Second).UnixMilli(), last.Add(time.Millisecond).UnixMilli(), math.MinInt64, math.MaxInt64} {
		require.Zero(t, Time(ms), "%d", ms)
	}
}

// A time counts until it is more than a minute ahead.
func TestHasCome(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	for ahead, want := range map[time.Duration]bool{-time.Hour: true, 0: true, time.Minute: true, time.Minute + time.Millisecond: false, 24 * time.Hour: false} {
		if got := HasCome(now.Add(ahead).UnixMilli(), now); got != want {
			t.Errorf("%v ahead: %t, want %t", ahead, got, want)
		}
		at := now.Add(ahead).UnixMilli()
		if RunCounts(at, 0, now) != want || RunCounts(0, at, now) != want {
			t.Errorf("a run with a tick or a start %v ahead counts: not %t", ahead, want)
		}
	}
}
