package concurrency_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// G1: a watch loses the event of an earlier request. No request is admitted in
// its place: each waiter knows from its own Txn how many were before it.
func TestLostEventAdmitsNoWaiter(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]concurrency.AcquireOption{"light": nil, "heavy": {concurrency.Weight(2)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			first, _ := f.Session(nil)
			second, _ := f.Session(nil)
			s, c := f.Session(&concurrency.SessionOptions{TTL: 300e9}) // no list by itself
			limit := 1 + len(opts)
			p := acquire(t, ctx, sem(t, first, "x", limit), opts...)
			sm := sem(t, s, "x", limit)
			x := ask(t, ctx, sm, opts...)
			f.sees(ctx, sm) // the mirror runs
			lost := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
				r, ok := msg.(*pb.WatchResponse)
				return ok && slices.ContainsFunc(r.Events, func(e *mvccpb.Event) bool {
					return e.Type == mvccpb.PUT && strings.Contains(string(e.Kv.Key), fmt.Sprintf("%016x-", int64(second.Lease())))
				})
			}})
			y := ask(t, ctx, sem(t, second, "x", limit), opts...)
			require.NoError(t, lost.WaitHit(ctx))
			z := ask(t, ctx, sm, opts...)
			require.NoError(t, p.Release(ctx))
			require.NoError(t, granted(t, x, "the first").Release(ctx))
			q := granted(t, y, "the second")
			st, err := sm.Status(ctx)
			require.NoError(t, err)
			require.Len(t, st.Waiters, 1)
			require.Never(t, func() bool { return len(z) > 0 }, 200e6, 10e6, "two were admitted")
			require.NoError(t, q.Release(ctx))
			require.NoError(t, granted(t, z, "the third").Release(ctx))
		})
	}
}

// A watch loses the event by which the waiter itself came: its request is not gone.
// (If it were taken for gone, the caller would queue anew, behind its own request.)
func TestLostEventOfTheWaiterItself(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	other, _ := f.Session(nil)
	s, c := f.Session(&concurrency.SessionOptions{TTL: 300e9}) // no list by itself
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sem(t, other, "x", 1))
	x := ask(t, ctx, sm)
	f.sees(ctx, sm) // the mirror runs
	lost := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: 1, Match: func(_ string, msg any) bool {
		r, ok := msg.(*pb.WatchResponse)
		return ok && len(r.Events) > 0 && r.Events[0].Type == mvccpb.PUT
	}})
	y := ask(t, ctx, sm)
	require.NoError(t, lost.WaitHit(ctx))
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Waiters, 2)
	token := st.Waiters[1].Token
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, x, "the first").Release(ctx))
	q := granted(t, y, "the second")
	require.Equal(t, token, q.Token(), "it has kept its place")
	require.NoError(t, q.Release(ctx))
}
