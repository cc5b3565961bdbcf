package concurrency_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// deletes matches a Txn that removes a request.
func deletes(_ string, msg any) bool {
	r, ok := msg.(*pb.TxnRequest)
	return ok && len(r.Success) > 0 && r.Success[0].GetRequestDeleteRange() != nil
}

// A request with an ID waits, its session loses its lease and it queues anew. The
// old request may still be in etcd: that is no reason to refuse the new one.
func TestIDOfALostLeaseIsOurs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	other, _ := f.Session(nil)
	p := acquire(t, ctx, sem(t, other, "x", 1))
	renewed := make(chan clientv3.LeaseID, 10)
	s, c := f.Session(&concurrency.SessionOptions{TTL: 4 * time.Second, Margin: 2 * time.Second,
		Hooks: testkit.Trace{SessionRenewed: func(id clientv3.LeaseID) { renewed <- id }}.Hooks()})
	w := ask(t, ctx, sem(t, s, "x", 1), concurrency.ID("job"))
	// Renewals fail until the deadline. The old request cannot be removed either,
	// until the new one has met it.
	alive := c.Inject(embedtest.Fault{Method: "LeaseKeepAlive", Do: embedtest.FailWith, Times: -1})
	stuck := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: 3, Match: deletes})
	lease := got(t, renewed, "a new lease")
	alive.Remove()
	require.Eventually(t, func() bool {
		select {
		case a := <-w:
			require.NoError(t, a.err, "it was refused because of itself")
		default:
		}
		st, err := sem(t, other, "x", 1).Status(ctx)
		return err == nil && len(st.Waiters) == 1 && st.Waiters[0].Lease == lease
	}, soon, 5*time.Millisecond)
	require.Positive(t, stuck.Hits())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "on the new lease").Release(ctx))
	f.NoKeys("queue/")
	f.NoKeys("/request-id/")
}

// The caller of a request with an ID gives up and comes again before etcd has received
// of it.
func TestIDOfAGivenUpRequestIsOurs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	given, cancel := context.WithCancel(ctx)
	w := ask(t, given, sm, concurrency.ID("job"))
	stuck := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Match: deletes})
	cancel()
	require.ErrorIs(t, got(t, w, "gives up").err, context.Canceled)
	require.NoError(t, stuck.WaitHit(ctx))
	again := ask2(ctx, sm, concurrency.ID("job"))
	asked := c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.Pass, Skip: 2, Match: func(_ string, msg any) bool {
		return strings.Contains(string(msg.(*pb.RangeRequest).Key), "/request-id/")
	}})
	require.NoError(t, asked.WaitHit(ctx))
	waiting(t, again, "the ID is that of its own former request")
	require.NoError(t, stuck.Release())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, again, "at last").Release(ctx))
}

// The ID decides before the queue does, in a try and under MaxWaiters, too.
func TestTryWithIDOnAFullQueue(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 2)
	p, other := acquire(t, ctx, sm, concurrency.ID("a")), acquire(t, ctx, sm)
	var held *concurrency.HeldError
	_, err := sm.TryAcquire(ctx, concurrency.ID("a"))
	require.ErrorAs(t, err, &held)
	require.Equal(t, p.Token(), held.Request.Token)
	_, err = sm.Acquire(ctx, concurrency.ID("a"), concurrency.MaxWaiters(0))
	require.ErrorAs(t, err, &held)
	_, err = sm.TryAcquire(ctx, concurrency.ID("b"))
	require.ErrorIs(t, err, concurrency.ErrFull)
	_, err = sm.TryAcquire(ctx, concurrency.ID("b"), concurrency.TakeOver())
	require.ErrorIs(t, err, concurrency.ErrFull)

	q, err := sm.TryAcquire(ctx, concurrency.ID("a"), concurrency.TakeOver())
	require.NoError(t, err, "the one who fills it is taken over")
	closed(t, p.Context().Done(), "taken over")
	require.ErrorIs(t, p.Err(), concurrency.ErrEvicted)

	_, err = sm.TryAcquire(ctx, concurrency.ID("a"), concurrency.TakeOver(), concurrency.Weight(2))
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, q.Err(), "no request is taken over if that does not help")
	require.NoError(t, q.Release(ctx))
	require.NoError(t, other.Release(ctx))
}

// An ID's key was deleted by hand and the ID is in use again, elsewhere. The first
// owner's release does not take it from the second.
func TestReleaseSparesAnothersID(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	other, _ := f.Session(nil)
	sm, there := sem(t, s, "x", 5), sem(t, other, "x", 5)
	p := acquire(t, ctx, sm, concurrency.ID("i"))
	_, err := f.Client().Delete(ctx, f.Keys("/request-id/")[0])
	require.NoError(t, err)
	q := acquire(t, ctx, there, concurrency.ID("i"))
	require.NoError(t, p.Release(ctx))
	var held *concurrency.HeldError
	_, err = sm.Acquire(ctx, concurrency.ID("i"))
	require.ErrorAs(t, err, &held)
	require.Equal(t, q.Token(), held.Request.Token)
	require.NoError(t, q.Release(ctx))
	f.NoKeys("/request-id/")
}

// Word of an eviction is looked for until etcd answers: an evicted waiter does not
// queue anew because one read has failed.
func TestEvictedWaiterStaysOut(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	other, _ := f.Session(nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	p := acquire(t, ctx, there)
	c.Inject(embedtest.Fault{Method: "Watch", Times: -1, Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
		r, ok := msg.(*pb.WatchResponse)
		return ok && len(r.Events) > 0 && strings.Contains(string(r.Events[0].Kv.Key), "/notice/")
	}})
	failed := c.Inject(embedtest.Fault{Method: "Range", Times: 3, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooManyRequests, Match: func(_ string, msg any) bool {
		return strings.Contains(string(msg.(*pb.RangeRequest).Key), "/notice/")
	}})
	w := ask(t, ctx, sm, concurrency.ID("i"))
	require.NoError(t, there.Evict(ctx, "i", "enough"))
	err := got(t, w, "evicted").err
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorContains(t, err, "enough")
	require.Equal(t, 3, failed.Hits())
	require.NoError(t, p.Release(ctx))
}

// A request that hangs on another lease than its name says has no owner to leave
// word for. It can be evicted all the same.
func TestEvictImpostor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/")[0]
	require.NoError(t, p.Release(ctx))
	l, err := f.Client().Grant(ctx, 60)
	require.NoError(t, err)
	forged := slot[:len(slot)-len("0000000000000000-0000")] + "00000000000000ab-0000"
	_, err = f.Client().Put(ctx, forged, "x", clientv3.WithLease(l.ID))
	require.NoError(t, err)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Holders, 1)
	require.NoError(t, sm.EvictToken(ctx, st.Holders[0].Token, ""))
	require.ErrorIs(t, sm.EvictToken(ctx, st.Holders[0].Token, ""), concurrency.ErrNotHeld)
	f.NoKeys("queue/")
}

// What a mutex can be asked for with an ID it can be asked about with it.
func TestMutexWithID(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	mu := mutex(t, s, "x")
	p, err := mu.Lock(ctx, concurrency.ID("a"))
	require.NoError(t, err)
	for st, err := range mu.Watch(ctx) {
		require.NoError(t, err)
		if len(st.Holders) == 1 {
			require.Equal(t, "a", st.Holders[0].ID)
			break
		}
	}
	require.ErrorIs(t, mu.Evict(ctx, "b", ""), concurrency.ErrNotHeld)
	require.NoError(t, mu.ReleaseID(ctx, "a"))
	closed(t, p.Context().Done(), "released by its ID")
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
	require.NoError(t, p.Release(ctx), "that is no loss")
	q, err := mu.TryLock(ctx, concurrency.ID("a"))
	require.NoError(t, err)
	require.NoError(t, mu.Evict(ctx, "a", "enough"))
	closed(t, q.Context().Done(), "evicted")
	require.ErrorIs(t, q.Release(ctx), concurrency.ErrEvicted)
}
