package idempotency_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A204: a condition of Attach is not met, and the outcome is committed again with another large result. A late copy of a
// part of the former one arrives between the parts of the latter and its record: it is shut out.
func TestLatePartOfAFormerCommit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"none"), "!=", 0)})
	late := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate, Match: func(_ string, msg any) bool {
		r := msg.(*etcdserverpb.TxnRequest)
		return len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestPut().GetKey()), "/part/")
	}})
	require.ErrorIs(t, at.Commit(ctxT(t), bytes.Repeat([]byte("a"), 300<<10)), idempotency.ErrConflict)
	require.Equal(t, 1, late.Hits())
	arrives := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Before: func() { _ = late.Release() }})
	want := bytes.Repeat([]byte("b"), 300<<10)
	require.NoError(t, at.Commit(ctxT(t), want))
	require.Equal(t, 1, arrives.Hits())
	require.True(t, bytes.Equal(want, replayed(t, b, key("1")).Value))
}
