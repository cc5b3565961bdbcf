package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A claim is taken back in the end, also if etcd is out of space for a while: its function was never called,
// so under Refuse nothing is unknown.
func TestClaimTakenBackWithoutSpace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	opts := &idempotency.Options{OnLost: idempotency.Refuse, NearQuota: 2}
	a := f.instance(nil, opts)
	at := begin(t, a, key("1"))
	_, err := idempotency.Step(at, "s", func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.NoError(t, at.Release(ctxT(t)))
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.DropResponse, After: func() {
		if err := f.ExpireLease(ctxT(t), a.sess.Lease()); err != nil {
			t.Error(err)
		}
	}})
	undo := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Times: 2, Err: rpctypes.ErrGRPCNoSpace})
	_, _, err = a.Begin(ctxT(t), key("1"), "payload")
	require.ErrorIs(t, err, idempotency.ErrNearQuota)
	require.Equal(t, 1, inj.Hits())
	at, _, err = a.Begin(ctxT(t), key("1"), "payload")
	require.NoError(t, err)
	require.Equal(t, 2, undo.Hits())
	require.Equal(t, 2, at.Attempt(), "the claim that was taken back was no attempt")
}
