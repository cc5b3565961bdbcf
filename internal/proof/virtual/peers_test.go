package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// Failures of other limiters that depend on the moment: section P of internal/proof/tested-failures.md.

// tenant is the semaphore of one key of a limiter, with a total.
func (d *desk) tenant(limit, total int) *concurrency.Semaphore {
	lim, err := concurrency.NewKeyedLimiter(d.session, "llm", limit, &concurrency.KeyedLimiterOptions{Total: total})
	require.NoError(d.t, err)
	return lim.Key("acme")
}

func (d *desk) hold1(sem *concurrency.Semaphore) *concurrency.Permit {
	d.t.Helper()
	p, err := sem.Acquire(within(d.t, time.Minute))
	require.NoError(d.t, err)
	return p
}

// admitted acquires in a goroutine, and reports when it was admitted.
func admitted(t *testing.T, sem *concurrency.Semaphore) <-chan time.Time {
	at := make(chan time.Time, 1)
	ctx := within(t, 3*time.Hour)
	go func() {
		defer close(at)
		if p, err := sem.Acquire(ctx); err == nil {
			at <- time.Now()
			_ = p.Release(context.Background())
		}
	}()
	return at
}

// P1: work that is longer than the lease, begun at any moment of the lease's life, keeps its permit
// to its end. If no renewal succeeds, the permit's context ends before the next request is admitted.
func TestPeerP1WorkLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]time.Duration{
		"with the lease": 0, "before the first renewal": renews - time.Nanosecond, "at the first renewal": renews, "later": 3*ttl + time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				time.Sleep(begins)
				p := on[0].hold1(on[0].tenant(1, 1))
				next := admitted(t, on[1].tenant(1, 1))
				time.Sleep(100 * ttl)
				require.NoError(t, p.Err())
				require.Empty(t, next)
				released := time.Now()
				require.NoError(t, p.Release(t.Context()))
				require.Equal(t, released, <-next)
			})
		})
		t.Run(name+", no renewal succeeds", func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				time.Sleep(begins)
				on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					return etcdfake.Fault{DropRequest: m.Method == "LeaseKeepAlive" && !m.Response}
				})
				p := on[0].hold1(on[0].tenant(1, 1))
				next := admitted(t, on[1].tenant(1, 1))
				ended(t, p)
				require.Empty(t, next, "it is notified before the next request is admitted")
				notified := time.Now()
				require.GreaterOrEqual(t, (<-next).Sub(notified), margin)
			})
		})
	}
}

// P2, P3: a process is killed while it holds. The process that replaces it is not admitted beside work
// that may still run, and is admitted when the lease has expired: however long the work may take.
func TestPeerP2HolderIsKilled(t *testing.T) {
	t.Parallel()
	const look = 500 * time.Millisecond
	bubbleOn(t, 2, func(t *testing.T, on []*desk) {
		killed, restarted := on[0], on[1]
		time.Sleep(7 * time.Second) // renewed 5 s after the beginning
		p, err := killed.tenant(1, 1).Acquire(t.Context(), concurrency.MaxHold(24*time.Hour))
		require.NoError(t, err)
		killed.client.Stall()
		renewed := killed.begun.Add(renews)
		_, err = restarted.tenant(1, 1).TryAcquire(t.Context())
		require.ErrorIs(t, err, concurrency.ErrFull)
		at := <-admitted(t, restarted.tenant(1, 1))
		require.Equal(t, renewed.Add(ttl), at)
		require.ErrorIs(t, p.Err(), concurrency.ErrLost)
	}, etcdfake.ExpireEvery(look))
}

// P6: a holder dies, and other processes use the same key all the time: that renews nothing of the dead
// one's, and afterwards the whole limit is there again.
func TestPeerP6TrafficKeepsNoDeadHolder(t *testing.T) {
	t.Parallel()
	const limit, look = 3, 500 * time.Millisecond
	bubbleOn(t, 2, func(t *testing.T, on []*desk) {
		dead, busy := on[0], on[1].tenant(limit, limit)
		time.Sleep(7 * time.Second)
		dead.hold1(dead.tenant(limit, limit))
		dead.client.Stall()
		gone := dead.begun.Add(renews + ttl)
		for time.Now().Before(gone.Add(time.Second)) {
			require.NoError(t, on[1].hold1(busy).Release(t.Context()))
			time.Sleep(10 * time.Millisecond)
		}
		for range limit {
			_, err := busy.TryAcquire(t.Context())
			require.NoError(t, err)
		}
		_, err := busy.TryAcquire(t.Context())
		require.ErrorIs(t, err, concurrency.ErrFull)
	}, etcdfake.ExpireEvery(look))
}
