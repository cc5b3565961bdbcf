package virtual

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// T31, T37: the bound on the wait is kept exactly, counted from the call and in
// fractions of seconds: however often the waiter wakes, however long its request
// takes to be written, and if it queues anew on another lease meanwhile.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	const d = 2*time.Second + 345*time.Millisecond
	for name, disturb := range map[string]func(on []*desk) (stop func()){
		"woken again and again": func(on []*desk) func() {
			noise, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { // each of these wakes the mirror twice
				for noise.Err() == nil {
					_, _ = on[1].semaphore(1).Acquire(noise, concurrency.Wait(2*time.Millisecond))
				}
			})
			return func() { stop(); wg.Wait() }
		},
		"slow to write": func(on []*desk) func() {
			on[0].slow("Txn", 1, etcdfake.Fault{RequestDelay: d * 3 / 4})
			return func() {}
		},
		"on two leases": func(on []*desk) func() {
			t := time.AfterFunc(d*3/4, func() { on[0].server.Expire(on[0].session.Lease()) })
			return func() { t.Stop() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, func(t *testing.T, on []*desk) {
				p := on[2].acquire()
				_, err := on[0].semaphore(1).TryAcquire(t.Context()) // the limit is known
				require.ErrorIs(t, err, concurrency.ErrFull)
				old := on[0].session.Lease()
				stop := disturb(on)
				begun := time.Now()
				_, err = on[0].semaphore(1).Acquire(within(t, time.Minute), concurrency.Wait(d))
				took := time.Since(begun)
				stop()
				require.Equal(t, d, took)
				var full *concurrency.FullError
				require.ErrorAs(t, err, &full)
				require.Equal(t, []int{1, 1}, []int{full.Limit, full.Used})
				require.Equal(t, name == "on two leases", old != on[0].session.Lease())
				require.NoError(t, p.Release(t.Context()))
				time.Sleep(time.Second)
				require.Empty(t, on[0].requests())
			})
		})
	}
}

// The former request cannot be removed for now. A call that does not wait gets the
// owner of the ID.
func TestIDThatIsNotYetFree(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.semaphore(5)
		p, err := sem.Acquire(t.Context(), concurrency.ID("job"))
		require.NoError(t, err)
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if r, ok := m.Body.(*pb.TxnRequest); ok && len(r.Success) > 0 && r.Success[0].GetRequestDeleteRange() != nil {
				return etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied, DropRequest: true}
			}
			return etcdfake.Fault{}
		})
		require.Error(t, p.Release(t.Context()))
		var held *concurrency.HeldError
		_, err = sem.TryAcquire(t.Context(), concurrency.ID("job"))
		require.ErrorAs(t, err, &held)
		require.Equal(t, p.Token(), held.Request.Token)
		_, err = sem.Acquire(within(t, time.Minute), concurrency.ID("job"), concurrency.MaxWaiters(3))
		require.ErrorAs(t, err, &held)
		begun := time.Now()
		_, err = sem.Acquire(within(t, time.Minute), concurrency.ID("job"), concurrency.Wait(2*time.Second))
		require.ErrorAs(t, err, &held)
		require.Equal(t, 2*time.Second, time.Since(begun))
		d.client.Inject(nil)
		p, err = sem.Acquire(within(t, time.Minute), concurrency.ID("job"))
		require.NoError(t, err)
		require.NoError(t, p.Release(t.Context()))
	})
}

// A call to etcd has a bound of its own. What the caller gets is the end of its
// ctx, which is no cancellation.
func TestTimeoutIsNoCancellation(t *testing.T) {
	t.Parallel()
	bounds := map[string]time.Duration{
		"in the next call":     commit.CallTimeout + 500*time.Millisecond,
		"before the next call": commit.CallTimeout + 2*time.Millisecond,
	}
	for name, call := range map[string]func(context.Context, *concurrency.Semaphore) error{
		"Status":     func(ctx context.Context, sem *concurrency.Semaphore) error { _, err := sem.Status(ctx); return err },
		"TryAcquire": func(ctx context.Context, sem *concurrency.Semaphore) error { _, err := sem.TryAcquire(ctx); return err },
		"Acquire":    func(ctx context.Context, sem *concurrency.Semaphore) error { _, err := sem.Acquire(ctx); return err },
	} {
		for when, bound := range bounds {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				bubble(t, 1, func(t *testing.T, on []*desk) {
					d := on[0]
					sem := d.semaphore(1)
					p, err := sem.Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, p.Release(t.Context()))
					d.client.Stall()
					begun := time.Now()
					err = call(within(t, bound), sem)
					require.Equal(t, bound, time.Since(begun))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.NotErrorIs(t, err, context.Canceled)
					d.client.Heal()
					synctest.Wait()
				})
			})
		}
	}
}
