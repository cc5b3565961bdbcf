package concurrency_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// BenchmarkRateAllow is one token from the shares of the process, which costs no request to etcd, and
// a refusal.
func BenchmarkRateAllow(b *testing.B) {
	s, err := concurrency.NewSession(b.Context(), embedtest.Start(b, nil).NewClient(b, nil).Client, "bench", nil)
	require.NoError(b, err)
	defer func() { _ = s.Close(context.Background()) }()
	for name, perSecond := range map[string]float64{"token": 1e6, "refusal": 1} {
		b.Run(name, func(b *testing.B) {
			l := rateLimiter(b, s, name, perSecond, 1<<30)
			require.NoError(b, l.Wait(b.Context()))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if l.Allow() == nil {
					n++
				}
			}
			b.ReportMetric(float64(n)/float64(b.N), "tokens/op")
		})
	}
}

// BenchmarkRateMoves has one process take the whole of a rate of 1,000 per second, and another one
// begin: ms-to-first is how long that waits for its first token, ms-to-half until it takes 45 % of the
// rate, over 100 ms.
func BenchmarkRateMoves(b *testing.B) {
	c := embedtest.Start(b, nil)
	var first, half []time.Duration
	for b.Loop() {
		var limiters []*concurrency.RateLimiter
		var sessions []*concurrency.Session
		for range 2 {
			s, err := concurrency.NewSession(b.Context(), c.NewClient(b, nil).Client, "bench", nil)
			require.NoError(b, err)
			sessions = append(sessions, s)
			limiters = append(limiters, rateLimiter(b, s, "moves", 1000, 200))
		}
		ctx, stop := context.WithCancel(b.Context())
		var busy sync.WaitGroup
		all := make(chan struct{})
		busy.Go(func() {
			for n := 0; limiters[0].Wait(ctx) == nil; n++ {
				if n == 3000 {
					close(all)
				}
			}
		})
		<-all
		begun := time.Now()
		var recent []time.Time
		for limiters[1].Wait(ctx) == nil {
			now := time.Now()
			if recent = append(recent, now); len(recent) == 1 {
				first = append(first, now.Sub(begun))
			}
			if n := len(recent); n > 45 && now.Sub(recent[n-46]) < 100*time.Millisecond {
				half = append(half, now.Sub(begun))
				break
			}
		}
		stop()
		busy.Wait()
		for _, s := range sessions {
			_ = s.Close(context.Background())
		}
	}
	slices.Sort(first)
	slices.Sort(half)
	b.ReportMetric(float64(first[len(first)/2].Milliseconds()), "ms-to-first")
	b.ReportMetric(float64(half[len(half)/2].Milliseconds()), "ms-to-half")
	b.ReportMetric(float64(half[len(half)-1].Milliseconds()), "ms-to-half-max")
}
