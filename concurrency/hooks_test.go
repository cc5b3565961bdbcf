package concurrency_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// T36: hooks may call the library, for the very semaphore that they report on.
func TestHooksMayCallBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var sm *concurrency.Semaphore
	var calls atomic.Int64
	look := func() {
		calls.Add(1)
		if _, err := sm.Status(ctx); !errors.Is(err, concurrency.ErrClosed) { // the test may be over
			assertNoError(t, err)
		}
		if p, err := sm.TryAcquire(ctx); err == nil {
			assertNoError(t, p.Release(ctx))
		}
	}
	var quiet atomic.Bool // hooks of what hooks do would go on for ever
	hook := func() {
		if quiet.CompareAndSwap(false, true) {
			look()
			quiet.Store(false)
		}
	}
	s, _ := f.session(&concurrency.SessionOptions{Trace: &concurrency.Trace{
		Waiting:  func(concurrency.WaitInfo) { hook() },
		Acquired: func(concurrency.AcquireInfo) { hook() },
		Released: func(concurrency.ReleaseInfo) { hook() },
		Lost:     func(*concurrency.LostError) { hook() },
	}})
	sm = sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	require.NoError(t, p.Release(ctx))
	q := granted(t, w, "the waiter")
	require.NoError(t, sm.EvictToken(ctx, q.Token(), "for a test"))
	closed(t, q.Lost(), "eviction")
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	require.GreaterOrEqual(t, calls.Load(), int64(2))
}

// T3: a release that comes between the request and the start of waiting is not
// missed.
func TestReleaseBeforeWaiting(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	other, _ := f.session(nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	p := acquire(t, ctx, there)
	between := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, After: func() { assertNoError(t, p.Release(ctx)) }})
	q := acquire(t, ctx, sm)
	require.Equal(t, 1, between.Struck())
	require.NoError(t, q.Release(ctx))

	// And between the watch and the list.
	p = acquire(t, ctx, there)
	between = c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.Pass, Before: func() { assertNoError(t, p.Release(ctx)) }})
	fresh := sem(t, s, "y", 1) // a mirror of its own
	require.NoError(t, acquire(t, ctx, sem(t, other, "y", 1)).Release(ctx))
	p = acquire(t, ctx, sem(t, other, "y", 1))
	w := ask2(ctx, fresh)
	require.NoError(t, granted(t, w, "despite all").Release(ctx))
	require.Equal(t, 1, between.Struck())
}

// F43: no Txn comes near etcd's bound of 128 operations, whatever the limit, the
// weight and the number of requests.
func TestTxnsAreSmall(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	var most atomic.Int64
	watch := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Times: -1, Match: func(_ string, msg any) bool {
		if r, ok := msg.(*etcdserverpb.TxnRequest); ok {
			most.Store(max(most.Load(), int64(max(len(r.Success), len(r.Failure), len(r.Compare)))))
		}
		return true
	}})
	sm := sem(t, s, "x", 2000)
	p := acquire(t, ctx, sm, concurrency.Weight(1500), concurrency.ID("i"), concurrency.Note("n"))
	for range 200 {
		acquire(t, ctx, sm)
	}
	require.NoError(t, sm.SetLimit(ctx, 100))
	require.NoError(t, sm.Evict(ctx, "i", "r"))
	closed(t, p.Lost(), "eviction")
	require.Positive(t, watch.Struck())
	require.LessOrEqual(t, most.Load(), int64(8))
}
