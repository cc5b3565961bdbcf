package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// Run.Txn leaves the caller's slice of conditions as it was, also where that has room for more.
func TestTxnLeavesTheCallersSlice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	conds := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(f.Root+"a"), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(f.Root+"b"), "=", 0),
	}
	second := conds[1]
	_, err := f.instance(nil, nil).Do(ctx, "job", func(ctx context.Context, r *schedlock.Run) error {
		resp, err := r.Txn(ctx, conds[:1]...).Then(clientv3.OpPut(f.Root+"a", "")).Commit()
		require.NoError(t, err)
		require.True(t, resp.Succeeded)
		return nil
	}, schedlock.Tick(time.Now()))
	require.NoError(t, err)
	require.Equal(t, second, conds[1])
}

// An elector reads its options after gocronlock.NewElector has returned, and not from the caller's
// slice.
func TestElectorKeepsItsOptions(t *testing.T) {
	t.Parallel()
	el, err := concurrency.NewElection(shared(t).instance(nil, nil).sess, "cron")
	require.NoError(t, err)
	for range 20 {
		opts := []concurrency.AcquireOption{concurrency.Weight(1)}
		e, err := gocronlock.NewElector(el, opts...)
		require.NoError(t, err)
		opts[0] = nil
		leads(t, e)
		require.NoError(t, e.Close(ctxT(t)))
	}
}
