package schedlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// BenchmarkDeadRuns shows what the names of a job's former runs, whose records are trimmed, cost its
// next runs until compaction: the median of the runs after so many of them, and the first of these.
// Before that the process knows no floor: the last one was not deleted by a run. 43,200 are the runs
// of a month of a job that runs once a minute.
func BenchmarkDeadRuns(b *testing.B) {
	ctx := context.Background()
	etcd := embedtest.Start(b, &embedtest.Options{QuotaBytes: 8 << 30})
	f := fixture{testkit.On(b, etcd)}
	in := f.instance(nil, &schedlock.Options{Keep: 2})
	job, gone, runs := keyspace.Job{Range: in.sess.NamespacePrefix() + "job/job/"}, 0, 0
	first := time.Now().Add(-60 * 24 * time.Hour)
	die := func(n int) {
		for ; n > 0; n -= 50 {
			var puts, deletes []clientv3.Op
			for range 50 {
				tick := first.Add(time.Duration(gone) * time.Second)
				gone++
				for _, key := range []string{job.Run(tick), job.Floor(tick)} {
					puts, deletes = append(puts, clientv3.OpPut(key, "{}")), append(deletes, clientv3.OpDelete(key))
				}
			}
			_, err := in.client.Txn(ctx).Then(puts...).Commit()
			require.NoError(b, err)
			_, err = in.client.Txn(ctx).Then(deletes...).Commit()
			require.NoError(b, err)
		}
	}
	measure := func() (median, first time.Duration) {
		var took []time.Duration
		for range 51 {
			runs++
			begun := time.Now()
			res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(runs)))
			took = append(took, time.Since(begun))
			require.NoError(b, err)
			require.Equal(b, schedlock.Ran, res.Outcome)
		}
		first = took[0]
		slices.Sort(took)
		return took[len(took)/2], first
	}
	report := func(b *testing.B) {
		median, first := measure()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(median.Microseconds()), "µs")
		b.ReportMetric(float64(first.Microseconds()), "first-µs")
	}
	measure()
	for _, n := range []int{0, 1200, 10_000, 43_200, 86_400} {
		b.Run(fmt.Sprintf("gone=%d", n), func(b *testing.B) {
			die(n - gone)
			report(b)
		})
	}
	b.Run("compacted", func(b *testing.B) {
		_, err := etcd.Compact(ctx)
		require.NoError(b, err)
		report(b)
	})
}
