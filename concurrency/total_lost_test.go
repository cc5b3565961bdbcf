package concurrency_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// One Txn has written a request at its key and in the total, and its answer is lost. When the request in
// the total is found, the session has met later revisions. That is no restored backup: it loses nothing.
func TestLostAnswerOfBothRequests(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no answer":      nil,
		"sent once more": status.Error(codes.Canceled, "reset by a proxy"), // by etcd's client
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			lim := totaled(t, s, "llm", 2, 3)
			held := acquire(t, ctx, lim.Key("other"))
			for range 3 { // from then on the session knows that there is room
				require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
			}
			lease := s.Lease()
			both := func(_ string, msg any) bool { // puts are of the key, and in a Txn inside of the total
				r := msg.(*etcdserverpb.TxnRequest)
				return writes(r, "/key/a/") && strings.Contains(r.String(), "/total/queue/light/")
			}
			lost := c.Inject(embedtest.Fault{Method: "Txn", Match: both, Do: embedtest.DropResponse, Err: err})
			p := acquire(t, ctx, lim.Key("a"))
			require.Equal(t, 1, lost.Hits())
			require.Equal(t, lease, s.Lease(), "no fault has ended the lease")
			f.holdsAll(held, p)
		})
	}
}

// holdsAll checks that permits of a limiter with a total are valid and that etcd has no other requests, and
// releases them.
func (f fixture) holdsAll(permits ...*concurrency.Permit) {
	f.T.Helper()
	for _, p := range permits {
		require.NoError(f.T, p.Err())
	}
	require.Len(f.T, f.Keys("/queue/"), 2*len(permits), "each request is at its key and in the total")
	for _, p := range permits {
		require.NoError(f.T, p.Release(ctxT(f.T)))
	}
	f.NoKeys("/queue/")
}

// writes reports whether a Txn first puts a request of the queue with that part in its keys.
func writes(r *etcdserverpb.TxnRequest, part string) bool {
	return len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestPut().GetKey()), part+"queue/")
}

// A try's join is refused, since another request has come to the total since it has looked. A copy of it,
// which etcd's client has sent by itself, arrives when the other is gone. The next look meets its revision,
// and the next Txn finds it.
func TestLateCopyOfARefusedJoin(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	o, _ := f.Session(idle())
	lim, there := totaled(t, s, "llm", 2, 3), totaled(t, o, "llm", 2, 3)
	held := acquire(t, ctx, lim.Key("other"))
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
	lease := s.Lease()

	var between atomic.Pointer[concurrency.Permit]
	join := c.Inject(embedtest.Fault{
		Method: "Txn", Match: func(_ string, msg any) bool { return writes(msg.(*etcdserverpb.TxnRequest), "/total/") },
		Do: embedtest.Duplicate, Err: status.Error(codes.Canceled, "reset by a proxy"), // as etcd's client sends a Txn twice
		Before: sync.OnceFunc(func() { between.Store(acquire(t, ctx, there.Key("b"))) }),
	})
	c.Inject(embedtest.Fault{Do: embedtest.Pass, Match: func(_ string, msg any) bool { return between.Load() != nil && looks(msg, "/total/") },
		Before: func() {
			require.NoError(t, between.Load().Release(ctx))
			require.NoError(t, join.Release())
			require.True(t, join.LateResponses()[0].Response.(*etcdserverpb.TxnResponse).Succeeded, "the copy is applied")
		}})
	p, err := lim.Key("a").TryAcquire(ctx)
	require.NoError(t, err)
	require.Len(t, join.LateResponses(), 1)
	require.Equal(t, lease, s.Lease(), "no fault has ended the lease")
	f.holdsAll(held, p)
}

// looks reports whether a call only reads, and first keys with that part.
func looks(msg any, part string) bool {
	read, ok := msg.(*etcdserverpb.RangeRequest)
	if r, txn := msg.(*etcdserverpb.TxnRequest); txn && len(r.Compare) == 0 && len(r.Success) > 0 {
		read, ok = r.Success[0].GetRequestRange(), true
	}
	return ok && strings.Contains(string(read.GetKey()), part)
}
