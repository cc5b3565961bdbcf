package concurrency_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// T36: hooks may call the library, for the very semaphore that they report on and
// for others: no lock is held meanwhile.
func TestHooksMayCallBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var s *concurrency.Session
	var sm *concurrency.Semaphore
	ran := make(chan string, 100)
	look := func() {
		_, err := sm.Status(ctx)
		assertNoError(t, err)
		assertNoError(t, sm.SetLimit(ctx, 1))
		assert.ErrorIs(t, sm.EvictToken(ctx, 1, ""), concurrency.ErrNotHeld)
		again, err := concurrency.NewSemaphore(s, "free", 100, nil)
		assertNoError(t, err)
		if p, err := again.Acquire(ctx); assertNoError(t, err) {
			assertNoError(t, p.Err())
			assertNoError(t, p.Release(ctx))
		}
		for _, sm := range []*concurrency.Semaphore{sm, again} {
			for _, err := range sm.Watch(ctx) {
				assertNoError(t, err)
				break
			}
		}
	}
	all := func(what, name string) {
		if name == "x" { // hooks of what hooks do would never end
			look()
			ran <- what
		}
	}
	s, _ = f.Session(&concurrency.SessionOptions{Hooks: testkit.Trace{
		Waiting:        func(i observe.Waiting) { all("waiting", i.Name) },
		Acquired:       func(i observe.Call, _ observe.Outcome) { all("acquired", i.Name) },
		Released:       func(i observe.Call, _ observe.Outcome) { all("released", i.Name) },
		Lost:           func(e *concurrency.LostError) { all("lost", e.Name) },
		SessionLost:    func(clientv3.LeaseID, error) { _, _ = sm.Status(ctx); _ = s.Lease(); ran <- "session lost" },
		SessionRenewed: func(clientv3.LeaseID) { all("session renewed", "x") },
	}.Hooks()})
	sm = sem(t, s, "x", 1)
	within := func(what ...string) {
		t.Helper()
		for len(what) > 0 {
			ran := got(t, ran, what[0])
			what = slices.DeleteFunc(what, func(w string) bool { return w == ran })
		}
	}
	ch := ask2(ctx, sm)
	within("acquired")
	p := granted(t, ch, "the first")
	w := ask2(ctx, sm)
	within("waiting")
	done := make(chan error, 1)
	go func() { done <- p.Release(ctx) }()
	within("released", "acquired")
	require.NoError(t, got(t, done, "the release"))
	q := granted(t, w, "the waiter")
	require.NoError(t, sm.EvictToken(ctx, q.Token(), "for a test"))
	within("lost")
	go func() { _, _ = sm.Acquire(ctx) }()
	within("acquired")
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	within("lost", "session lost", "session renewed")
}

// T3: a release that comes between the request and the start of waiting is not
// missed, whatever the process knows of the queue by then.
func TestReleaseBeforeWaiting(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(f fixture, c *embedtest.Client, sm *concurrency.Semaphore, release func()) *embedtest.Injection{
		"nothing": func(_ fixture, c *embedtest.Client, _ *concurrency.Semaphore, release func()) *embedtest.Injection {
			return c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, After: release})
		},
		"nothing, and it comes while the queue is listed": func(_ fixture, c *embedtest.Client, _ *concurrency.Semaphore, release func()) *embedtest.Injection {
			return c.Inject(embedtest.Fault{Method: "Range", Match: lists, Do: embedtest.Pass, Before: release})
		},
		"nothing, and it comes after the queue was listed": func(_ fixture, c *embedtest.Client, _ *concurrency.Semaphore, release func()) *embedtest.Injection {
			return c.Inject(embedtest.Fault{Method: "Range", Match: lists, Do: embedtest.Pass, After: release})
		},
		"all, the release too": func(f fixture, c *embedtest.Client, sm *concurrency.Semaphore, release func()) *embedtest.Injection {
			f.sees(ctxT(f.T), sm) // its mirror runs on for a while
			return c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, After: func() {
				release()
				f.sees(ctxT(f.T), sm)
			}})
		},
	} {
		t.Run("it knows "+name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			other, _ := f.Session(nil)
			sm := sem(t, s, "x", 1)
			require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // the limit is stored, and known
			p := acquire(t, ctx, sem(t, other, "x", 1))
			between := strike(f, c, sm, func() { assertNoError(t, p.Release(ctx)) })
			require.NoError(t, granted(t, ask2(ctx, sm), "despite all").Release(ctx))
			require.Equal(t, 1, between.Hits())
		})
	}
}

// F43: no Txn comes near etcd's bound of 128 operations, whatever the limit, the
// weight and the number of requests.
func TestTxnsAreSmall(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
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
	closed(t, p.Context().Done(), "eviction")
	require.Positive(t, watch.Hits())
	require.LessOrEqual(t, most.Load(), int64(8))
}

// S3, S9: a hook that gets one permit's end and takes its time neither
// delays the word of another end nor hides that the lease is lost: contexts end
// while it runs.
func TestSlowLostHookHidesNoLoss(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	runs, gate := make(chan struct{}, 10), make(chan struct{})
	defer close(gate)
	s, _ := f.Session(&concurrency.SessionOptions{
		TTL:   300 * time.Second, // neither a deadline nor a refresh can show it
		Hooks: testkit.Trace{Lost: func(*concurrency.LostError) { runs <- struct{}{}; <-gate }}.Hooks(),
	})
	other, _ := f.Session(nil)
	sm, there := sem(t, s, "x", 2), sem(t, other, "x", 2)
	a, b := acquire(t, ctx, sm, concurrency.ID("a")), acquire(t, ctx, sm, concurrency.ID("b"))
	mu := lock(t, s, "x")
	require.NoError(t, there.Evict(ctx, "a", ""))
	closed(t, a.Context().Done(), "it is evicted")
	got(t, runs, "the hook runs")
	require.NoError(t, there.Evict(ctx, "b", ""))
	closed(t, b.Context().Done(), "it is evicted while the hook runs")
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	next := lock(t, other, "x")
	closed(t, mu.Context().Done(), "the lease is lost while the hook runs, and the next one holds")
	require.ErrorIs(t, mu.Err(), concurrency.ErrLost)
	require.Greater(t, next.Token(), mu.Token())
}
