package concurrency_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// F28, T21: a waiter whose session's lease is lost does not wait for those before
// it, nor for word from the queue: it queues anew at once.
func TestWaiterOfALostLeaseQueuesAnew(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(nil)
	mu, there := mutex(t, s, "x"), mutex(t, other, "x")
	holder, err := there.Lock(ctx)
	require.NoError(t, err)
	listed := c.Inject(embedtest.Fault{Method: "Range", Match: lists, Do: embedtest.Pass})
	ch := make(chan answer, 1)
	go func() {
		p, err := mu.Lock(ctx)
		ch <- answer{p, err}
	}()
	queued := func(n int, lease clientv3.LeaseID) {
		require.Eventually(t, func() bool {
			st, err := there.Status(ctx)
			return err == nil && len(st.Waiters) == n && (n == 0 || st.Waiters[0].Lease != lease)
		}, soon, 5*time.Millisecond)
	}
	queued(1, 0)
	require.NoError(t, listed.WaitHit(ctx), "its watch of the queue is open")
	old := s.Lease()
	// The session watches its presence; what it watches of the queue gets lost.
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/queue/")})
	require.NoError(t, f.RevokeLease(ctx, old))
	queued(1, old)
	require.Eventually(t, func() bool { return mute.Hits() > 0 }, soon, 5*time.Millisecond)
	mute.Remove()
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith}) // so that it lists the queue
	require.NoError(t, holder.Release(ctx))
	p := granted(t, ch, "on the new lease")
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
}

// F30, S10: a request is admitted, and before the caller has the answer the lease
// is lost. That is no permit: the call continues, on the next lease.
func TestTrapS10LateGrantIsNoPermit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	opts, reported := traced(idle())
	s, c := f.Session(opts)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	old := s.Lease()
	late := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, After: func() {
		assertNoError(t, f.RevokeLease(ctx, old))
		got(t, reported.lost, "SessionLost")
	}})
	p := acquire(t, ctx, sm)
	require.Equal(t, 1, late.Hits())
	require.NoError(t, p.Err())
	require.NotEqual(t, old, s.Lease())
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Holders, 1)
	require.Equal(t, p.Token(), st.Holders[0].Token)
	require.Equal(t, s.Lease(), st.Holders[0].Lease)
	require.NoError(t, p.Release(ctx))
	f.NoKeys("queue/")
}

// F29: a waiting request that was deleted by hand queues anew; one that another client
// created in its place is not taken for it, whether the process saw both happen or
// only what has come of it.
func TestWaiterWhoseKeyWasReplaced(t *testing.T) {
	t.Parallel()
	for _, sees := range []bool{true, false} {
		t.Run(fmt.Sprintf("sees=%v", sees), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			sm := sem(t, s, "x", 1)
			p := acquire(t, ctx, sm)
			holder := f.Keys("queue/")
			w := ask(t, ctx, sm)
			f.sees(ctx, sm)
			key := slices.DeleteFunc(f.Keys("queue/"), func(key string) bool { return key == holder[0] })[0]
			anew := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest})
			mute := embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/queue/")}
			if sees {
				mute.Do = embedtest.Pass
			}
			muted := c.Inject(mute)
			_, err := f.Client().Delete(ctx, key)
			require.NoError(t, err)
			_, err = f.Client().Put(ctx, key, `{"v":1,"nonce":"of another","at":1}`, clientv3.WithLease(s.Lease()))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return muted.Hits() > 0 }, soon, tick)
			if !sees {
				f.sees(ctx, sm) // what comes after it
				muted.Remove()
				c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoLeader})
				f.sees(ctx, sm) // by a list: such a watch is not resumed
			}
			require.NoError(t, anew.WaitHit(ctx), "its request is gone")
			require.NoError(t, anew.Release())
			require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 3 }, soon, tick, "it asks in another slot")
			require.NoError(t, p.Release(ctx))
			f.sees(ctx, sm)
			waiting(t, w, "the impostor is before it: it has a lease and counts")
			_, err = f.Client().Delete(ctx, key)
			require.NoError(t, err)
			require.NoError(t, granted(t, w, "the impostor is gone").Release(ctx))
		})
	}
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
		s, c := f.Session(nil)
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
	f.NoKeys("queue/")
}
