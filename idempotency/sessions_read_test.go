package idempotency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A387: the sessions of a large fleet are read page by page, at one revision, which etcd compacts between two pages. What
// asks whether the process of a lost attempt lives failed; it reads them again.
func TestSessionsAreReadAgainAfterACompaction(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	ref := begin(t, a, key("1")).Ref()
	a.crash(t, f)
	const others = 1001 // more than one page
	for from := 0; from < others; from += 100 {
		var puts []clientv3.Op
		for n := from; n < from+100; n++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%ssession/%016x/alive", b.sess.NamespacePrefix(), n+1), record.Session{ID: fmt.Sprint(n)}.Encode()))
		}
		_, err := f.Client().Txn(ctxT(t)).Then(puts...).Commit()
		require.NoError(t, err)
	}
	compacted := b.client.Inject(embedtest.Fault{Method: "Range", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCCompacted, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.RangeRequest)
		return ok && r.Revision > 0 && strings.Contains(string(r.Key), "/session/")
	}})
	r, _, err := b.Get(ctxT(t), ref)
	require.NoError(t, err)
	require.False(t, r.Alive)
	require.Equal(t, 1, compacted.Hits())
	require.NoError(t, b.Resolve(ctxT(t), ref, idempotency.NotDone()))
}
