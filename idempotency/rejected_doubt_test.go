package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A try to commit is not answered, and etcd rejects the next one: ErrInvalid, the attempt continues. A late copy of the
// first has no effect. If that try had one, it is the outcome.
func TestRejectedAfterATryInDoubt(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		f := shared(t)
		a, b := f.instance(nil, nil), f.instance(nil, nil)
		at := begin(t, a, key("1"))
		condition := clientv3.Compare(clientv3.CreateRevision(f.Root+"condition"), "!=", 0)
		if applied {
			condition = clientv3.Compare(clientv3.CreateRevision(f.Root+"condition"), "=", 0)
		}
		at.Attach([]clientv3.Cmp{condition}, clientv3.OpPut(f.Root+"effect", ""))
		late := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.Duplicate})
		refused := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCDuplicateKey})
		err := at.Commit(ctxT(t), []byte("a"))
		require.Equal(t, []int{1, 1}, []int{late.Hits(), refused.Hits()})
		if applied {
			require.NoError(t, err)
			require.Equal(t, "a", string(replayed(t, b, key("1")).Value))
			continue
		}
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		_, err = f.Client().Put(ctxT(t), f.Root+"condition", "")
		require.NoError(t, err)
		_ = late.Release()
		require.Empty(t, f.Keys("effect"))
		require.NoError(t, at.Commit(ctxT(t), []byte("b")))
		require.Equal(t, "b", string(replayed(t, b, key("1")).Value))
	}
}
