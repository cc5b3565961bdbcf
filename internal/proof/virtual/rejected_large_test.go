package virtual

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// partIsPut reports whether a message puts a part of a large result.
func partIsPut(m etcdfake.Message) bool {
	txn, ok := m.Body.(*etcdserverpb.TxnRequest)
	return ok && len(txn.Success) > 0 && strings.Contains(string(txn.Success[0].GetRequestPut().GetKey()), "/part/")
}

// TestRejectedAfterALargeOutcome: a large outcome with an attached operation is recorded, and its answer is lost. Then a member
// refuses its part, so its value is left out, and etcd denies what is attached for five seconds. The outcome is the one
// that is recorded, with its value (A329): Commit returned ErrFenced, as if another attempt had taken over.
func TestRejectedAfterALargeOutcome(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, store := on[0], on[0].storeOf(idempotency.Options{})
		at := started(t, store, order("1"), idempotency.OnLost(idempotency.Refuse))
		at.Attach(nil, clientv3.OpPut(root+"ledger/1", "1"))
		var written, denied, large atomic.Int64
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			switch {
			case m.Response:
			case ledgers(m) && written.CompareAndSwap(0, 1):
				return etcdfake.Fault{DropResponse: true, Err: etcdfake.ErrUnavailable}
			case ledgers(m):
				denied.Add(1)
				return etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCPermissionDenied}
			case partIsPut(m) && written.Load() > 0 && large.CompareAndSwap(0, 1):
				return etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCRequestTooLarge}
			}
			return etcdfake.Fault{}
		})
		want := bytes.Repeat([]byte("a"), 300<<10)
		require.NoError(t, at.Commit(t.Context(), want))
		require.Positive(t, denied.Load())
		require.Positive(t, large.Load())
		require.Len(t, d.server.Keys(root+"ledger/"), 1)
		other := d.storeOf(idempotency.Options{CacheBytes: -1})
		_, rec, err := other.Begin(t.Context(), order("1"), "payload")
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, rec.Value))
		require.False(t, rec.Omitted)
	})
}
