package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A limit is lowered below the weight of a request that sleeps: it fails, as one that follows the queue.
func TestFarRequestTooHeavy(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	const limit = 4
	s, _ := f.Session(idle())
	for range limit {
		acquire(t, ctx, sem(t, s, "x", limit))
	}
	f.line(blind, limit, int(blind.Distance(limit)))
	own, _ := f.tiny(nil)
	sm := sem(t, own, "x", limit)
	before := len(f.Keys("queue/"))
	heavy, light := ask2(ctx, sm, concurrency.Weight(limit)), ask2(ctx, sm)
	f.queued(before + 2) // both have compared the limits
	require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
	require.NoError(t, sem(t, s, "x", limit).SetLimit(ctx, 2))
	select {
	case a := <-heavy:
		require.ErrorIs(t, a.err, concurrency.ErrInvalid)
	case <-time.After(soon):
		t.Fatal("it waits for what it never gets")
	}
	require.Empty(t, light)
}

// A wait that ends far away knows that the limit is in use, whatever the weights before it: that is no
// outage.
func TestFarWaitBehindHeavyRequestsEnds(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	const limit = 2
	s, _ := f.Session(idle())
	plain := sem(t, s, "x", limit)
	acquire(t, ctx, plain, concurrency.Weight(limit))
	for range 8 {
		ask2(ctx, plain, concurrency.Weight(2))
	}
	f.queued(9)
	own, _ := f.tiny(nil)
	sm := sem(t, own, "x", limit)
	ask2(ctx, sm)
	require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
	_, err := sm.Acquire(ctx, concurrency.Wait(time.Second))
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NotErrorIs(t, err, concurrency.ErrUnavailable)
	full, ok := errors.AsType[*concurrency.FullError](err)
	require.True(t, ok)
	require.Equal(t, limit, full.Used)
	require.Positive(t, full.Waiting)
}

// A far request sleeps beside calls of its session whose requests are being written: beside tries at once,
// beside others as soon as they are written.
func TestFarRequestBesideOtherCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []concurrency.AcquireOption
		then bool
	}{"a try": {[]concurrency.AcquireOption{concurrency.Wait(0)}, false}, "a call that waits": {nil, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, _ := f.Session(idle())
			acquire(t, ctx, sem(t, s, "x", 1))
			f.line(blind, 1, 4)
			own, client := f.tiny(nil)
			sm := sem(t, own, "x", 1)
			_, err := sm.TryAcquire(ctx) // the limit is known from now on
			require.ErrorIs(t, err, concurrency.ErrFull)
			hang, resume := context.WithCancel(ctx)
			defer resume()
			reached, first := make(chan struct{}), atomic.Bool{}
			for _, method := range []string{"Txn", "Range"} { // whichever its first request is
				client.Inject(embedtest.Fault{Method: method, Times: 1, Do: embedtest.Pass, Before: func() { close(reached); <-hang.Done() },
					Match: func(_ string, msg any) bool { // the session's own requests are of other keys
						return contains(fmt.Sprint(msg), "/x/") && first.CompareAndSwap(false, true)
					}})
			}
			ask2(ctx, sm, c.opts...)
			closed(t, reached, "it is being written")
			ask2(ctx, sm)
			f.queued(6)
			if c.then {
				require.Eventually(t, func() bool { return concurrency.Follows(sm) }, soon, tick)
				require.False(t, concurrency.Sleeps(sm), "the other request may be before it")
				resume()
			}
			require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
		})
	}
}

// TestFarWaitEndsWithNewCounts: the Wait of a request that sleeps ends: the error says how full the queue is then, by one
// count for those that end at the same time. Of a limit that was paused meanwhile, counts do not show who holds (A476 in
// internal/proof/tested-failures.md: it had the queue of when the request came, and of a pause that nothing was in use).
func TestFarWaitEndsWithNewCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(ctx context.Context, f fixture, sm *concurrency.Semaphore)
		want   string
	}{
		"more have come": {func(ctx context.Context, f fixture, sm *concurrency.Semaphore) {
			before := len(f.Keys("queue/"))
			for range 5 {
				ask2(ctx, sm)
			}
			f.queued(before + 5)
		}, "2 of 2 in use, %d waiting"},
		"it is paused": {func(ctx context.Context, _ fixture, sm *concurrency.Semaphore) {
			require.NoError(t, sm.SetLimit(ctx, 0))
		}, "limit 0 (SetLimit resumes); etcd has not shown the queue in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			const limit = 2
			s, _ := f.Session(idle())
			plain := sem(t, s, "x", limit)
			for range limit {
				acquire(t, ctx, plain)
			}
			f.line(blind, limit, int(blind.Distance(limit)))
			own, client := f.tiny(nil)
			sm := sem(t, own, "x", limit)
			before := len(f.Keys("queue/"))
			const calls = 6
			ends := make(chan error, calls)
			for range calls {
				go func() {
					_, err := sm.Acquire(ctx, concurrency.Wait(3*time.Second)) // time for the change
					ends <- err
				}()
			}
			f.queued(before + calls)
			require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
			c.change(ctx, f, plain)
			want := strings.Replace(c.want, "%d", fmt.Sprint(len(f.Keys("queue/light/"))-limit-1), 1) // without the call itself
			counts := client.Inject(embedtest.Fault{Method: "Txn", Match: counting, Times: -1, Do: embedtest.Pass})
			for range calls {
				err := got(t, ends, "the wait ends")
				require.ErrorIs(t, err, concurrency.ErrFull)
				require.ErrorContains(t, err, want)
			}
			require.Less(t, counts.Hits(), calls, "they share a count")
		})
	}
}

// counting reports whether a Txn counts requests and writes nothing.
func counting(_ string, msg any) bool {
	r, ok := msg.(*pb.TxnRequest)
	return ok && slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool { return op.GetRequestRange().GetCountOnly() }) &&
		!slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil })
}
