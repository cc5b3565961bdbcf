package concurrency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// The key of a try that is about to go makes no call fail when no permit is held.
func TestTrapL4Try(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	other, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	plant := func() { // a try that will find itself too late
		_, err := f.Client().Put(ctx, slot+"-try", "{}", clientv3.WithLease(other.Lease()))
		require.NoError(t, err)
	}
	plant()
	var err error
	for quick := false; !quick; { // its patience is 100 ms: a busy machine may use it up
		begun := time.Now()
		looks := c.Inject(embedtest.Fault{Method: "Range", Match: lists, Do: embedtest.Pass, After: func() {
			_, err := f.Client().Delete(ctx, slot+"-try")
			assertNoError(t, err)
			quick = time.Since(begun) < 50*time.Millisecond
		}})
		p, err = sm.TryAcquire(ctx)
		quick = quick && time.Since(begun) < 80*time.Millisecond || err == nil
		require.Equal(t, 1, looks.Hits())
		if !quick {
			plant()
		}
	}
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))

	plant() // one that stays does hold
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.Len(t, f.Keys("queue/"), 1, "and those who were refused leave nothing")
}

// Wait(0) does not wait: Acquire, Lock and Campaign with it are tries.
func TestWaitOfZeroIsATry(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	sm, mu, el := sem(t, s, "x", 1), mutex(t, s, "x"), election(t, s, "x")
	for what, ask := range map[string]func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error){
		"Acquire": sm.Acquire, "TryAcquire": sm.TryAcquire, "Lock": mu.Lock, "Campaign": el.Campaign,
	} {
		p, err := ask(ctxT(t), concurrency.Wait(0))
		require.NoError(t, err, what)
		_, err = ask(ctxT(t), concurrency.Wait(0))
		require.ErrorIs(t, err, concurrency.ErrFull, what)
		_, err = ask(ctxT(t), concurrency.Wait(0), concurrency.MaxWaiters(1))
		require.ErrorIs(t, err, concurrency.ErrInvalid, what)
		require.NoError(t, p.Release(ctxT(t)), what)
	}
}

// A request that comes between a try's look at the queue and its own request is seen.
func TestTrapL4NoRequestIsOverlooked(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	other, _ := f.Session(nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	var p *concurrency.Permit
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Before: func() { p = acquire(t, ctx, there) }})
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, p.Release(ctx))
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Before: func() { require.NoError(t, there.SetLimit(ctx, 0)) }})
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "the limit counts as of the request")
	f.NoKeys("queue/")
}

// Many tries at once: never more than the limit, and never all refused while a
// permit is free.
func TestTriesInACrowd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var g gauge
	type result struct{ won, refused int }
	results := make(chan result, 8)
	for range 8 {
		s, _ := f.Session(nil)
		sm := sem(t, s, "x", 3)
		go func() {
			var r result
			for range 25 {
				p, err := sm.TryAcquire(ctx)
				if errors.Is(err, concurrency.ErrFull) {
					r.refused++
					continue
				}
				if !assertNoError(t, err) {
					break
				}
				g.enter(1)
				r.won++
				g.leave(1)
				assertNoError(t, p.Release(ctx))
			}
			results <- r
		}()
	}
	var sum result
	for range 8 {
		r := got(t, results, "the tries end")
		sum.won, sum.refused = sum.won+r.won, sum.refused+r.refused
	}
	t.Logf("won %d, refused %d, peak %d", sum.won, sum.refused, g.peak.Load())
	require.LessOrEqual(t, g.peak.Load(), int64(3))
	require.Positive(t, sum.won)
	f.NoKeys("queue/")
}

// Others get in between a try's look and its write, four times. Written all the same,
// it is granted by what the list shows, and needs no watch for that.
func TestTryNeedsNoWatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	o, _ := f.Session(nil)
	sm, other := sem(t, s, "x", 5), sem(t, o, "x", 5)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	heavy := acquire(t, ctx, other, concurrency.Weight(2)) // counts alone do not decide then
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldRequest, Times: -1})
	var between *concurrency.Permit
	puts := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Times: 4, Match: func(_ string, msg any) bool {
		r, ok := msg.(*pb.TxnRequest)
		return ok && len(r.Success) > 0 && r.Success[0].GetRequestPut() != nil
	}, Before: func() { between = acquire(t, ctx, other) }, After: func() { assertNoError(t, between.Release(ctx)) }})
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, puts.Hits())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, heavy.Release(ctx))
}

// A wait that ends before the queue could be listed does not make numbers up.
func TestFullErrorKnowsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	o, _ := f.Session(nil)
	s, c := f.Session(nil)
	p := acquire(t, ctx, sem(t, o, "x", 1))
	sm := sem(t, s, "x", 1)
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	slow := c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldResponse, Times: -1})
	waiting, over := context.WithCancel(ctx)
	var answers sync.WaitGroup
	answers.Go(func() { // etcd is not unavailable
		for mu := mutex(t, s, "other"); waiting.Err() == nil; time.Sleep(10 * time.Millisecond) {
			_ = mu.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
		}
	})
	_, err = sm.Acquire(ctx, concurrency.Wait(300*time.Millisecond))
	over()
	answers.Wait()
	slow.Remove()
	require.NoError(t, slow.Release())
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, &concurrency.FullError{Name: "x", Limit: 1, Used: 1}, full, "as the Txn of its request has counted")
	require.NoError(t, p.Release(ctx))
}
