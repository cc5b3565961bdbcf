package virtual

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/observe"
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

// Without etcd, a process with shares goes on until its lease ends; then its calls say why they fail.
func TestRateWithoutEtcd(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		t.Run(how, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				l := d.rate(200, 50)
				require.NoError(t, l.Wait(within(t, time.Minute)))
				time.Sleep(time.Until(d.begun.Add(7 * time.Second))) // renewed 5 s after the beginning
				require.NoError(t, l.Wait(within(t, time.Minute)))
				away(d.client)
				var last time.Time
				for l.Wait(within(t, 300*time.Millisecond)) == nil {
					last = time.Now()
				}
				deadline := d.begun.Add(renews + ttl - margin)
				require.WithinRange(t, last, deadline.Add(-time.Second), deadline)
				begun := time.Now()
				err := l.Wait(within(t, 2*time.Second))
				require.Equal(t, 2*time.Second, time.Since(begun))
				require.ErrorIs(t, err, concurrency.ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, l.Allow(), concurrency.ErrUnavailable)
				d.client.Heal()
				require.NoError(t, l.Wait(within(t, time.Minute)))
			})
		})
	}
}

// A184 in internal/proof/tested-failures.md: calls without a deadline that wait for long are counted as such; those of a
// slow rate that wait for its next tokens are not.
func TestLongWaitsOfARate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate        float64 // in force
		program     float64 // that of the program, if it is another one
		calls       int
		least, most int64 // long waits
	}{
		"used up":             {rate: 10, calls: 300, least: 190, most: 210}, // the process begins without a share
		"used up, and raised": {rate: 10, program: 0.001, calls: 300, least: 190, most: 210},
		"slow":                {rate: 0.05, calls: 2},
		"slow, since lowered": {rate: 0.05, program: 10, calls: 2},
		"in order":            {rate: 10, calls: 80},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				_ = d.session.Close(t.Context())
				var long, all atomic.Int64
				var err error
				d.session, err = concurrency.NewSession(t.Context(), d.client.Client, "test", &concurrency.SessionOptions{Prefix: prefix, TTL: ttl, Margin: margin,
					Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
						if e, ok := e.(observe.RateCalls); ok {
							all.Add(int64(e.Count))
							if e.Result == observe.Granted && e.Reason == observe.Waited {
								long.Add(int64(e.Count))
							}
						}
					}}}})
				require.NoError(t, err)
				require.NoError(t, d.rate(c.rate, 1).SetRate(t.Context(), concurrency.Rate{PerSecond: c.rate, Burst: 1}, concurrency.CreateLimit()))
				l, err := concurrency.NewRateLimiter(d.session, "rate", concurrency.Rate{PerSecond: cmp.Or(c.program, c.rate), Burst: 1}, &concurrency.RateLimiterOptions{AdoptRate: true})
				require.NoError(t, err)
				var calls sync.WaitGroup
				for range c.calls {
					calls.Go(func() { require.NoError(t, l.Wait(t.Context())) })
				}
				calls.Wait()
				time.Sleep(time.Second)
				require.EqualValues(t, c.calls, all.Load())
				require.True(t, c.least <= long.Load() && long.Load() <= c.most, long.Load())
			})
		})
	}
}
