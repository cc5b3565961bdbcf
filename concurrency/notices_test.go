package concurrency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The notice of an eviction is kept for the request that waits, however many notices come
// that are for no request. It would else take its key for deleted by hand, and queue anew.
func TestNoticeOutlastsOthers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(&concurrency.SessionOptions{TTL: 300e9, MaxPermits: 2})
	other, _ := f.Session(idle())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sem(t, other, "x", 1))
	w := ask(t, ctx, sm)
	f.sees(ctx, sm)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	token, lease := st.Waiters[0].Token, s.Lease()
	prefix, namespace, _ := strings.Cut(strings.TrimSuffix(s.NamespacePrefix(), "/"), "/v1/")
	space, err := keyspace.New(prefix, namespace)
	require.NoError(t, err)
	request := ""
	for _, key := range f.Keys("queue/") {
		if strings.Contains(key, fmt.Sprintf("%016x", int64(lease))) {
			request = key
		}
	}
	notice := func(token int64) clientv3.Op {
		n := record.Notice{Cause: record.CauseEvicted, Reason: "enough"}
		return clientv3.OpPut(space.Session(int64(lease)).Notice(token, request), n.Encode(), clientv3.WithLease(lease))
	}
	// First the one for the waiter, then as many as were ever kept, and more.
	ops := []clientv3.Op{notice(token)}
	for n := range int64(1200) {
		if ops = append(ops, notice(token+1+n)); len(ops) == 100 || n == 1199 {
			_, err := f.Client().Txn(ctx).Then(ops...).Commit()
			require.NoError(t, err)
			ops = nil
		}
	}
	f.NoKeys("/notice/") // the session has taken them all
	for _, key := range f.Keys("queue/") {
		resp, err := f.Client().Get(ctx, key)
		require.NoError(t, err)
		if resp.Kvs[0].CreateRevision == token {
			_, err = f.Client().Delete(ctx, key)
			require.NoError(t, err)
		}
	}
	a := got(t, w, "the waiter is notified")
	require.ErrorIs(t, a.err, concurrency.ErrEvicted)
	require.ErrorContains(t, a.err, "enough")
	require.NoError(t, p.Release(ctx))
}
