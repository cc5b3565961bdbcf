package virtual

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// T4: of a burst of calls on one session, 128 at a time ask etcd, so that the renewal of
// the lease does not wait behind thousands of requests. A call alone does not wait.
func TestBurstAsksInTurn(t *testing.T) {
	t.Parallel()
	const calls, atOnce, trip = 1000, 128, 10 * time.Millisecond
	for name, tt := range map[string]struct {
		method string
		call   func(ctx context.Context, sm *concurrency.Semaphore) error
	}{
		"first calls": {"Range", func(ctx context.Context, sm *concurrency.Semaphore) error { _, err := sm.Acquire(ctx); return err }},
		"Acquire":     {"Txn", func(ctx context.Context, sm *concurrency.Semaphore) error { _, err := sm.Acquire(ctx); return err }},
		"TryAcquire":  {"Range", func(ctx context.Context, sm *concurrency.Semaphore) error { _, err := sm.TryAcquire(ctx); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				sm := d.semaphore(2 * calls)
				if name != "first calls" {
					p, err := sm.Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, p.Release(t.Context()))
				}
				var sent atomic.Int64
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if m.Method == tt.method {
						sent.Add(1)
						return etcdfake.Fault{ResponseDelay: trip}
					}
					return etcdfake.Fault{}
				})
				if name == "Acquire" {
					begun := time.Now()
					require.NoError(t, tt.call(t.Context(), sm))
					require.Equal(t, trip, time.Since(begun), "alone")
					sent.Store(0)
				}
				var all sync.WaitGroup
				var failed atomic.Int64
				for range calls {
					all.Go(func() {
						if tt.call(within(t, time.Minute), sm) != nil {
							failed.Add(1)
						}
					})
				}
				synctest.Wait()
				require.InDelta(t, atOnce, sent.Load(), 1, "one more may be the session's list of its own range")
				all.Wait()
				require.Zero(t, failed.Load())
			})
		})
	}
}

// A burst of tries that etcd answers slowly is no outage, also for those that had no turn
// within TryTimeout.
func TestTriesWithoutATurn(t *testing.T) {
	t.Parallel()
	const calls, trip = 4000, 300 * time.Millisecond
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.semaphore(1)
		p, err := sem.Acquire(t.Context())
		require.NoError(t, err)
		d.slow("Range", 1<<30, etcdfake.Fault{RequestDelay: trip})
		errs := make(chan error, calls)
		begun := time.Now()
		for range calls {
			go func() {
				_, err := sem.TryAcquire(context.Background())
				errs <- err
			}()
		}
		unseen := 0
		for range calls {
			err := came(t, errs, "a try")
			require.ErrorIs(t, err, concurrency.ErrFull)
			require.NotErrorIs(t, err, concurrency.ErrUnavailable)
			var full *concurrency.FullError
			if errors.As(err, &full) && full.Used == 0 {
				unseen++
			}
		}
		require.NotZero(t, unseen, "some had no turn")
		require.Equal(t, concurrency.TryTimeout, time.Since(begun))
		require.NoError(t, p.Release(t.Context()))
	})
}
