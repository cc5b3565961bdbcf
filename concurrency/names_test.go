package concurrency

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// A process that uses ever new names, a mutex for each user, say, keeps nothing of
// those that it no longer refers to.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := NewSession(ctx, c.Client(), "test", &SessionOptions{Prefix: c.Prefix(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(ctx)) }()
	kept, err := NewMutex(s, "user-0")
	require.NoError(t, err)
	p, err := kept.Lock(ctx)
	require.NoError(t, err)
	for i := range 50 {
		mu, err := NewMutex(s, fmt.Sprint("user-", i))
		require.NoError(t, err)
		if i > 0 {
			require.NoError(t, mu.Do(ctx, func(context.Context, *Permit) error { return nil }))
		}
	}
	for range 1000 {
		_, err := NewMutex(s, "one of a thousand")
		require.NoError(t, err)
	}
	rate, err := NewRateLimiter(s, "tenant-0", Rate{PerSecond: 1, Burst: 1}, nil)
	require.NoError(t, err)
	require.ErrorIs(t, rate.Allow(), ErrRateExceeded) // it asks for a share
	for i := range 1000 {
		_, err := NewRateLimiter(s, fmt.Sprint("tenant-", i), Rate{PerSecond: 1, Burst: 1}, nil)
		require.NoError(t, err)
		_, err = NewKeyedLimiter(s, fmt.Sprint("api-", i), 5, nil)
		require.NoError(t, err)
	}
	shares, own := rate.in().shares, engine.Own(s)
	require.Eventually(t, func() bool {
		runtime.GC()
		own.mu.Lock()
		defer own.mu.Unlock()
		return len(own.queues.of) == 2 && len(own.rates.of) == 1 && len(own.bases.of) == 0
	}, time.Minute, time.Millisecond, "only what is in use is kept")
	again, err := NewRateLimiter(s, "tenant-0", Rate{PerSecond: 1, Burst: 1}, nil)
	require.NoError(t, err)
	require.Same(t, shares, again.in().shares)
	runtime.KeepAlive(rate)
	require.NoError(t, p.Release(ctx))
	runtime.KeepAlive(kept)
}

// A foreign key is where this session's next request would. It costs none of
// the permits that the session may have.
func TestForeignKeyCostsNoPermit(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := NewSession(ctx, c.Client(), "test", &SessionOptions{Prefix: c.Prefix(t), MaxPermits: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close(ctx)) }()
	mu, err := NewMutex(s, "x")
	require.NoError(t, err)
	p, err := mu.Lock(ctx)
	require.NoError(t, err)
	slot := p.ticket.Key
	require.NoError(t, p.Release(ctx))
	_, err = c.Client().Put(ctx, slot, "foreign")
	require.NoError(t, err)
	for range 3 {
		p, err = mu.Lock(ctx)
		require.NoError(t, err)
		require.NotEqual(t, slot, p.ticket.Key)
		require.NoError(t, p.Release(ctx))
	}
}
