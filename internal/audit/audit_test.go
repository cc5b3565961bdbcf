package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A process whose clock is a day ahead has made changes. What others change later is on one lease in each hour, and is not
// the first that goes when there are too many.
func TestTrailBesideAWrongClock(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
		ctx, client := t.Context(), etcd.NewClient().Client
		session, err := concurrency.NewSession(ctx, client, "test", nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, session.Close(ctx)) }()
		sess := engine.Of(session)
		granted, err := client.Grant(ctx, int64(kept/time.Second))
		require.NoError(t, err)
		ahead := time.Now().Add(24 * time.Hour).UnixMilli()
		for i := range int64(most + slack - 10) {
			_, err := client.Put(ctx, sess.Space().Change(ahead+i, "fast"), record.Change{Verb: "limit", AtMS: ahead + i}.Encode(), clientv3.WithLease(granted.ID))
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Hour) // its lease is not used any more for new records
		leases := func() int {
			all, err := client.Leases(ctx)
			require.NoError(t, err)
			return len(all.Leases)
		}
		before := leases()
		for i := range 11 { // each by a process of its own
			require.NoError(t, New(sess, zap.NewNop()).Add(ctx, record.Change{Verb: "limit", Name: fmt.Sprint("semaphore/", i)}, "operator"))
		}
		require.Equal(t, before+1, leases())
		left, err := client.Get(ctx, sess.Space().Changes(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
		require.NoError(t, err)
		require.Len(t, left.Kvs, most)
		for _, kv := range left.Kvs[:11] {
			require.Contains(t, string(kv.Value), "semaphore/")
		}
	})
}

// A378: a script that deletes requests without a reason does not push out the changes that have one.
func TestSurplus(t *testing.T) {
	t.Parallel()
	var all []*mvccpb.KeyValue
	add := func(n int, reason string) {
		for range n {
			all = append(all, &mvccpb.KeyValue{Key: fmt.Append(nil, len(all)), Value: []byte(record.Change{Verb: "delete", By: "ann", Reason: reason}.Encode())})
		}
	}
	keys := func() (keys []string) {
		for _, kv := range surplus(all) {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
	add(most, "too many calls")
	require.Empty(t, keys())
	add(2, "")
	require.Equal(t, []string{"1000", "1001"}, keys(), "the latest, but without a reason")
	add(2, "the end of the test")
	require.Equal(t, []string{"1000", "1001", "0", "1"}, keys())
	// A392: one of a later release, which may have a reason, counted as one without.
	all[3].Value = []byte(`{"v":2,"reason":{"text":"too many calls"}}`)
	require.Equal(t, []string{"1000", "1001", "0", "1"}, keys())
	add(most, "")
	require.Len(t, keys(), atOnce)
	require.Equal(t, []string{"1000", "1001", "1004"}, keys()[:3])
}
