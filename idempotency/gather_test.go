package idempotency_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// held has outcomes recorded and returns an instance that reads them, of which the first
// two reads are under way until the fault is released, and what these two calls return.
func held(t *testing.T, many int) (b instance, inj *embedtest.Injection, ended chan error) {
	f := shared(t)
	idle := &concurrency.SessionOptions{TTL: 60 * time.Second}
	a := f.instance(idle, nil)
	b = f.instance(idle, &idempotency.Options{CacheBytes: -1})
	for n := range many {
		require.NoError(t, begin(t, a, key(fmt.Sprint(n))).Commit(ctxT(t), []byte(fmt.Sprint(n))))
	}
	replayed(t, b, key("0")) // it knows a revision now
	b.client.ResetRequests()
	inj = b.client.Inject(embedtest.Fault{Method: "Range", Match: isRead, Times: 2, Do: embedtest.HoldResponse})
	ended = make(chan error, 3)
	for n := range 2 {
		go func() {
			_, _, err := b.Begin(ctxT(t), key(fmt.Sprint(n)), "payload")
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return inj.Hits() == 2 }, soon, 5*time.Millisecond)
	return b, inj, ended
}

// Reads that come while others are in flight are sent together.
func TestReadsGather(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"all is well":       {Method: "Txn", Skip: 1000},
		"one of them fails": {Method: "Txn", Do: embedtest.FailWith},
		"an answer is lost": {Method: "Txn", Do: embedtest.DropResponse},
		"it is too much":    {Method: "Txn", Times: -1, Do: embedtest.FailWith, Err: status.Error(codes.ResourceExhausted, "a message larger than max")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const many = 100
			b, inj, ended := held(t, many)
			idempotency.GatherUntilSent(b.Store)
			var wg sync.WaitGroup
			for n := range many {
				wg.Go(func() {
					_, rec, err := b.Begin(ctxT(t), key(fmt.Sprint(n)), "payload", idempotency.Wait(0))
					if err != nil || string(rec.Value) != fmt.Sprint(n) {
						t.Errorf("%d: %+v, %v", n, rec, err)
					}
				})
			}
			// Two of them join the calls for their keys, which are under way.
			require.Eventually(t, func() bool { return idempotency.Gathered(b.Store) == many-2 }, soon, 5*time.Millisecond)
			b.client.Inject(fault)
			inj.Release()
			wg.Wait()
			for range 2 {
				require.NoError(t, got(t, ended, "the first reads end"))
			}
			if fault.Do == embedtest.Pass {
				require.Equal(t, 2, b.client.Requests()["Range"])
				txns := b.client.Requests()["Txn"]
				require.GreaterOrEqual(t, txns, 2, "of 64 keys at most")
				require.LessOrEqual(t, txns, 6, "of many keys; one that fails is sent again, and a slot that becomes free early sends few")
			}
		})
	}
}

// A read that hangs does not delay others, and a read whose ctx ends soon is sent at once.
func TestReadsDoNotWaitForOnesThatHang(t *testing.T) {
	t.Parallel()
	b, inj, ended := held(t, 4)
	require.Equal(t, "2", string(replayed(t, b, key("2")).Value))
	idempotency.GatherUntilSent(b.Store)
	ctx, cancel := context.WithCancel(ctxT(t))
	go func() {
		_, _, err := b.Begin(ctx, key("3"), "payload")
		ended <- err
	}()
	require.Eventually(t, func() bool { return idempotency.Gathered(b.Store) == 1 }, soon, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, got(t, ended, "it returns"), context.Canceled)
	require.Zero(t, idempotency.Gathered(b.Store))
	inj.Release()
	for range 2 {
		require.NoError(t, got(t, ended, "the first reads end"))
	}
	require.Equal(t, "3", string(replayed(t, b, key("3")).Value))
}

// Closing a session ends the wait of reads.
func TestReadsOfAClosedSession(t *testing.T) {
	t.Parallel()
	b, _, ended := held(t, 3)
	idempotency.GatherUntilSent(b.Store)
	go func() {
		_, _, err := b.Begin(ctxT(t), key("2"), "payload")
		ended <- err
	}()
	require.Eventually(t, func() bool { return idempotency.Gathered(b.Store) == 1 }, soon, 5*time.Millisecond)
	require.NoError(t, b.sess.Close(ctxT(t)))
	for range 3 {
		if err := got(t, ended, "it returns"); err != nil { // or it was read before all was closed
			require.ErrorIs(t, err, idempotency.ErrClosed)
		}
	}
}

// Claims and outcomes that come while others are in flight are sent together, and each request is still
// executed once: the callers of one key get one result, whichever answers are lost.
func TestWritesGather(t *testing.T) {
	t.Parallel()
	const many, callers = 100, 2
	for name, fault := range map[string]*embedtest.Fault{
		"all is well":           nil,
		"answers are lost":      {Times: 2, Do: embedtest.DropResponse},
		"requests come twice":   {Times: 2, Do: embedtest.Duplicate},
		"they are too large":    {Times: 2, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooLarge},
		"their leases are gone": {Times: 2, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := own(t)
			idle := &concurrency.SessionOptions{TTL: 60 * time.Second}
			in, other := f.instance(idle, nil), f.instance(idle, nil)
			require.NoError(t, begin(t, in, key("warm")).Commit(ctxT(t), nil)) // the leases
			burst := func(round int) {
				var began [many]atomic.Int32
				var wg sync.WaitGroup
				name := func(n int) idempotency.Key { return key(fmt.Sprint(round, "-", n)) }
				for n := range many * callers {
					wg.Go(func() {
						n /= callers
						res, err := idempotency.Do(ctxT(t), in.Store, name(n), "payload", func(context.Context, *idempotency.Attempt) (int, error) {
							began[n].Add(1)
							return n, nil
						}, idempotency.LikelyNew())
						if err != nil || res.Value != n {
							t.Errorf("%d: %+v, %v", n, res, err)
						}
					})
				}
				wg.Wait()
				for n := range many {
					require.EqualValues(t, 1, began[n].Load(), n)
					require.Equal(t, fmt.Sprint(n), string(replayed(t, other, name(n)).Value))
				}
			}
			gathered := func(before uint64) bool { return f.RaftIndex()-before < 2*many } // each alone would be two
			if fault != nil {
				fault.Method, fault.Match = "Txn", isBatch
				inj := in.client.Inject(*fault)
				gathered = func(uint64) bool { return inj.Hits() > 0 }
			}
			for round := 0; ; round++ { // on a busy machine a burst may come one by one
				before := f.RaftIndex()
				burst(round)
				if gathered(before) {
					return
				}
				require.Less(t, round, 10, "no burst was gathered")
			}
		})
	}
}

// An outcome that etcd refuses again and again fails the outcomes that are sent with it once, and not
// at each try.
func TestRefusedOutcomeGoesAlone(t *testing.T) {
	t.Parallel()
	f := own(t)
	in := f.instance(&concurrency.SessionOptions{TTL: 60 * time.Second}, nil)
	a := begin(t, in, key("refused"))
	record := f.Keys("/idempotency/store/record/")[0]
	puts := func(ops []*etcdserverpb.RequestOp) bool {
		return slices.ContainsFunc(ops, func(op *etcdserverpb.RequestOp) bool { return string(op.GetRequestPut().GetKey()) == record })
	}
	var together, alone atomic.Int32
	inj := in.client.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Match: func(_ string, msg any) bool {
		ops := msg.(*etcdserverpb.TxnRequest).Success
		switch {
		case puts(ops):
			alone.Add(1)
		case slices.ContainsFunc(ops, func(op *etcdserverpb.RequestOp) bool { return puts(op.GetRequestTxn().GetSuccess()) }):
			together.Add(1)
		default:
			return false
		}
		return true
	}})
	var crowd sync.WaitGroup
	defer crowd.Wait()
	ctx, stop := context.WithCancel(ctxT(t))
	defer stop()
	for n := range 64 {
		crowd.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := idempotency.Do(ctxT(t), in.Store, key(fmt.Sprint(n, " ", i)), "payload", func(context.Context, *idempotency.Attempt) (int, error) {
					return n, nil
				}, idempotency.LikelyNew())
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	tries, enough := context.WithTimeout(ctxT(t), time.Second)
	defer enough()
	require.ErrorIs(t, a.Commit(tries, []byte("done")), idempotency.ErrNotRecorded)
	require.Eventually(t, func() bool { return alone.Load() >= 5 }, soon, 5*time.Millisecond)
	require.LessOrEqual(t, together.Load(), int32(1))
	inj.Remove()
	require.Eventually(t, func() bool { return in.Stats().Pending == 0 }, soon, 5*time.Millisecond)
	require.Equal(t, "done", string(replayed(t, in, key("refused")).Value))
}

// isBatch reports whether a message is a Txn of Txns.
func isBatch(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) > 0 && r.Success[0].GetRequestTxn() != nil
}
