package concurrency_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// BenchmarkDeadProcesses shows what the names of processes that have used a semaphore and are gone
// cost those that use it now: an Acquire and Release after so many of them, each with ten names, and
// after a compaction. 30,000 are those of a month with 100 processes that are deployed ten times a
// day.
func BenchmarkDeadProcesses(b *testing.B) {
	ctx := context.Background()
	etcd := embedtest.Start(b, &embedtest.Options{QuotaBytes: 8 << 30})
	client := etcd.NewClient(b, nil).Client
	s, err := concurrency.NewSession(ctx, client, "bench", nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(ctx) })
	sm := sem(b, s, "free", 10)
	space, err := keyspace.New(keyspace.DefaultPrefix, "bench")
	require.NoError(b, err)
	queue, gone := space.Queue(keyspace.Semaphore, "free"), 0
	die := func(n int) {
		each(b, n, func(i int) error {
			var puts, deletes []clientv3.Op
			for slot := range 10 {
				key := queue.Slot(keyspace.Slot{Lease: int64(1)<<61 + int64(gone+i), Number: slot, Weight: 1})
				puts, deletes = append(puts, clientv3.OpPut(key, "{}")), append(deletes, clientv3.OpDelete(key))
			}
			if _, err := client.Txn(ctx).Then(puts...).Commit(); err != nil {
				return err
			}
			_, err := client.Txn(ctx).Then(deletes...).Commit()
			return err
		})
		gone += n
	}
	measure := func() time.Duration {
		var took []time.Duration
		for range 101 {
			took = append(took, timed(func() { require.NoError(b, acquire(b, ctx, sm).Release(ctx)) }))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	measure()
	for _, n := range []int{0, 100, 1000, 3000, 30_000} {
		b.Run(fmt.Sprintf("gone=%d", n), func(b *testing.B) {
			die(n - gone)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(measure().Microseconds()), "µs")
		})
	}
	b.Run("compacted", func(b *testing.B) {
		_, err := etcd.Compact(ctx)
		require.NoError(b, err)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(measure().Microseconds()), "µs")
	})
}
