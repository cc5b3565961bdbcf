package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/rate"
)

// N15: a token is taken only if, at that moment, the lease is trusted and the rate was read less
// than a TTL ago, whatever the loop and the timers have noticed by then.
func TestRateTrust(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trusted bool
		fresh   time.Duration
		want    bool
	}{
		"trusted":              {true, time.Hour, true},
		"the lease is over":    {false, time.Hour, false},
		"the rate was too old": {true, -time.Nanosecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			s := &Shares{fresh: now.Add(c.fresh), leases: func() bool { return c.trusted }}
			d := rate.Divide(rate.Rate{PerSecond: 0.001, Burst: 10}) // none accrues while the test runs
			s.bucket.Set(now.Add(-1000*time.Hour), d.Shares, d)
			require.Equal(t, c.want, s.take())
			s.fresh, c.trusted = now.Add(time.Hour), true
			require.Equal(t, c.want, s.take(), "tokens that were void once stay void")
		})
	}
}

// When a share is lost, tokens have accrued for it since a moment that is not known: all are void, those of
// the other shares as well.
func TestRateShareIsLost(t *testing.T) {
	t.Parallel()
	now, lost, other := time.Now(), &Share{}, &Share{}
	s := &Shares{
		division: rate.Division{Rate: rate.Rate{PerSecond: 0.001, Burst: 10}, Shares: 10}, fresh: now.Add(time.Hour),
		leases: func() bool { return true }, held: []*Share{lost, other}, wake: make(chan struct{}, 1),
	}
	s.bucket.Set(now.Add(-1000*time.Hour), 2, s.division)
	require.True(t, s.take(), "two tokens")
	s.drop(lost)
	require.Equal(t, []*Share{other}, s.held)
	require.EqualValues(t, 1, s.bucket.Held())
	require.False(t, s.take())
	require.Len(t, s.wake, 1, "the loop asks for another one")
}

// A process asks for no more shares than its session may have requests, but for one if it has none.
func TestMayAsk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, has, spare, want int }{
		{8, 0, 100, 8}, {8, 0, 5, 5}, {8, 5, 0, 0}, {3, 2, 1, 1}, {8, 0, 0, 1}, {0, 0, 0, 0}, {0, 0, 5, 0}, {1, 3, 9, 1},
	} {
		require.Equal(t, c.want, mayAsk(c.n, c.has, c.spare), c)
	}
}
