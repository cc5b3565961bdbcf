package concurrency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/rate"
)

// Trap N15: a token is taken only if, at that moment, the lease is trusted and the rate was read less
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
			s := &rateShares{fresh: now.Add(c.fresh), leases: func() bool { return c.trusted }}
			d := rate.Divide(rate.Rate{PerSecond: 10, Burst: 10})
			s.bucket.Set(now.Add(-time.Hour), d.Shares, d)
			require.Equal(t, c.want, s.take())
			s.fresh, c.trusted = now.Add(time.Hour), true
			require.Equal(t, c.want, s.take(), "tokens that were void once stay void")
		})
	}
}
