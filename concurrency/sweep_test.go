package concurrency_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// sentTwice has etcd's client send a Txn once more by itself. Release sends the
// first copy again: it was under way all the time.
func sentTwice(c *embedtest.Client) *embedtest.Injection {
	return c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate, Err: status.Error(codes.Canceled, "reset by a proxy")})
}

// L1: an acquire that etcd's client has sent twice. One copy was answered, and its
// permit released, when the other arrives: a request that no caller made. The session
// removes it, with its ID, and spares those of other requests.
func TestTrapL1AnsweredAndUnderWay(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a sweep: 7 s")
	}
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(brisk())
	o, _ := f.Session(nil)
	sm, other := sem(t, s, "x", 2), sem(t, o, "x", 2)
	kept := acquire(t, ctx, sm, concurrency.ID("kept"))
	mine, err := c.Put(ctx, f.Root+"/of-the-user", "", clientv3.WithLease(s.Lease()))
	require.NoError(t, err)
	require.NotZero(t, mine.Header.Revision)
	copied := sentTwice(c)
	p := acquire(t, ctx, sm, concurrency.ID("job"))
	require.Equal(t, 1, copied.Hits())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, copied.Release(), "the other copy arrives")
	require.Len(t, f.Keys("queue/"), 2)
	require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 1 }, soon, 5*time.Millisecond)
	require.NoError(t, acquire(t, ctx, other, concurrency.ID("job")).Release(ctx), "the ID and the permit are free again")
	require.NoError(t, kept.Err())
	require.Len(t, f.Keys("queue/"), 1)
	require.Len(t, f.Keys("/id/"), 1)
	require.Len(t, f.Keys("/of-the-user"), 1)
	require.NoError(t, kept.Release(ctx))
}

// L1: one copy is refused, because the ID is in use, and the other arrives when it
// is not any more.
func TestTrapL1RefusedAndUnderWay(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a sweep: 5 s")
	}
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(brisk())
	o, _ := f.Session(nil)
	sm, other := sem(t, s, "x", 2), sem(t, o, "x", 2)
	p := acquire(t, ctx, other, concurrency.ID("job"))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // the limit is known
	copied := sentTwice(c)
	_, err := sm.Acquire(ctx, concurrency.ID("job"))
	var held *concurrency.HeldError
	require.ErrorAs(t, err, &held)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, copied.Release())
	require.Len(t, f.Keys("queue/"), 1)
	f.NoKeys("queue/")
	f.NoKeys("/id/")
}

// Requests of many queues share a Txn, and so a revision. A late copy of such a Txn is more than one Txn can
// remove.
func TestSweepOfALargeTxn(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a sweep: 5 s")
	}
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(brisk())
	sm := sem(t, s, "x", 1)
	const own = 10
	queue := concurrency.QueueOf(sm)
	var puts [2][]clientv3.Op
	for i := range 150 {
		key := queue.Slot(keyspace.Slot{Lease: int64(s.Lease()), Number: own + i, Weight: 1})
		puts[i%2] = append(puts[i%2], clientv3.OpPut(key, "", clientv3.WithLease(s.Lease())))
	}
	_, err := c.Txn(ctx).Then(clientv3.OpTxn(nil, puts[0], nil), clientv3.OpTxn(nil, puts[1], nil)).Commit()
	require.NoError(t, err)
	require.Len(t, f.Keys("queue/"), 150)
	f.NoKeys("queue/")
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
}

// What is being made and released all the time is never swept.
func TestSweepSparesTheLiving(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for two sweeps: 11 s")
	}
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(brisk())
	sm := sem(t, s, "x", 4)
	swept := c.Inject(embedtest.Fault{Method: "LeaseTimeToLive", Do: embedtest.Pass, Times: -1})
	errs := make(chan error, 8)
	var rounds atomic.Int64
	for worker := range 4 {
		go func() {
			for swept.Hits() < 2 {
				p, err := sm.Acquire(ctx, concurrency.ID(string(rune('a'+worker))))
				if err == nil {
					err = p.Release(ctx)
				}
				switch {
				case err == nil:
					rounds.Add(1)
				case !contains(err.Error(), "lease was not renewed in time"): // that was the machine, and no sweep
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		require.NoError(t, got(t, errs, "a worker"))
	}
	require.Greater(t, rounds.Load(), int64(20))
}

// The sweep reads a name that was used and is free, and then it is in use again.
func TestSweepSparesASuccessor(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for two sweeps: 10 s")
	}
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(brisk())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.Keys("queue/")[0]
	listed := c.Inject(embedtest.Fault{Method: "LeaseTimeToLive", Do: embedtest.HoldResponse})
	require.NoError(t, listed.WaitHit(ctx))
	require.NoError(t, p.Release(ctx))
	read := c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldRequest, Match: func(_ string, msg any) bool {
		return string(msg.(*pb.RangeRequest).Key) == slot
	}})
	require.NoError(t, listed.Release())
	require.NoError(t, read.WaitHit(ctx))
	p = acquire(t, ctx, sm)
	require.Equal(t, slot, f.Keys("queue/")[0])
	next := c.Inject(embedtest.Fault{Method: "LeaseTimeToLive", Do: embedtest.Pass})
	require.NoError(t, read.Release())
	require.NoError(t, next.WaitHit(ctx), "the sweep is over")
	require.NoError(t, p.Release(ctx))
}
