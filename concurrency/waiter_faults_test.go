package concurrency_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// F28, F30, T21: a waiter whose session's lease is lost does not wait for those
// before it: it queues anew, and never returns a permit on the lost lease.
func TestWaiterOfALostLeaseQueuesAnew(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	other, _ := f.session(nil)
	mu, there := mutex(t, s, "x"), mutex(t, other, "x")
	holder, err := there.Lock(ctx)
	require.NoError(t, err)
	ch := make(chan answer, 1)
	go func() {
		p, err := mu.Lock(ctx)
		ch <- answer{p, err}
	}()
	standing := func(n int, lease clientv3.LeaseID) {
		require.Eventually(t, func() bool {
			st, err := there.Status(ctx)
			return err == nil && len(st.Waiters) == n && (n == 0 || st.Waiters[0].Lease != lease)
		}, soon, time.Millisecond)
	}
	standing(1, 0)
	old := s.Lease()
	require.NoError(t, f.RevokeLease(ctx, old))
	standing(1, old)
	require.NoError(t, holder.Release(ctx))
	p := granted(t, ch, "on the new lease")
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
}

// F29: a waiting request that was deleted by hand queues anew; one that someone
// created in its place is not taken for it.
func TestWaiterWhoseKeyWasReplaced(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	holder := f.keys("queue/")[0]
	w := ask(t, ctx, sm)
	anew := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	for _, key := range f.keys("queue/") {
		if key != holder {
			_, err := f.Client().Txn(ctx).Then(clientv3.OpDelete(key)).Commit()
			require.NoError(t, err)
			_, err = f.Client().Put(ctx, key, "an impostor", clientv3.WithLease(s.Lease()))
			require.NoError(t, err)
		}
	}
	require.NoError(t, anew.Wait(ctx))
	require.NoError(t, anew.Release())
	require.Eventually(t, func() bool { return len(f.keys("queue/")) == 3 }, soon, time.Millisecond, "it asks in another slot")
	require.NoError(t, p.Release(ctx))
	waiting(t, w, "the impostor is before it: it stands on a lease and counts")
	for _, key := range f.keys("queue/") {
		resp, err := f.Client().Get(ctx, key)
		require.NoError(t, err)
		if string(resp.Kvs[0].Value) == "an impostor" {
			_, err := f.Client().Delete(ctx, key)
			require.NoError(t, err)
		}
	}
	require.NoError(t, granted(t, w, "the impostor is gone").Release(ctx))
}

// F32, T6: compaction at the head, again and again, does not disturb waiting
// callers and leaves no key.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := f.Compact(ctx); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	var g gauge
	var wg sync.WaitGroup
	for range 3 {
		s, c := f.session(nil)
		mu := mutex(t, s, "x")
		wg.Go(func() {
			for i := range 20 {
				if i%5 == 4 { // the watch is set up anew, at a revision that is compacted
					c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith})
				}
				require.NoError(t, mu.Do(ctx, func(context.Context, *concurrency.Permit) error {
					g.enter(1)
					g.leave(1)
					return nil
				}))
			}
		})
	}
	wg.Wait()
	close(stop)
	<-done
	require.EqualValues(t, 1, g.peak.Load())
	f.noKeys("queue/")
}
