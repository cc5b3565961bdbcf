package concurrency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// BenchmarkManyNames has the callers of one session acquire and release free permits, each of a
// semaphore of its own, or all of one, with fsync on. One op is one permit; txn/op is how many
// requests of the session's client it took.
func BenchmarkManyNames(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct{ callers, names int }{{1, 1}, {4, 4}, {8, 8}, {16, 16}, {64, 64}, {256, 256}, {64, 1}} {
		b.Run(fmt.Sprintf("callers=%d/names=%d", c.callers, c.names), func(b *testing.B) {
			etcd := embedtest.Start(b, &embedtest.Options{Fsync: true, QuotaBytes: 8 << 30})
			client := etcd.NewClient(b, nil)
			s, err := concurrency.NewSession(ctx, client.Client, "bench", nil)
			require.NoError(b, err)
			b.Cleanup(func() { _ = s.Close(ctx) })
			var all []func() error
			for i := range c.callers {
				sm := sem(b, s, fmt.Sprintf("free-%d", i%c.names), 1000)
				all = append(all, func() error {
					p, err := sm.Acquire(ctx)
					if err != nil {
						return err
					}
					return p.Release(ctx)
				})
			}
			atOnce(b, all, 4*c.callers) // the limits
			client.ResetRequests()
			b.ResetTimer()
			n := max(b.N, 20*c.callers)
			took := atOnce(b, all, n)
			b.StopTimer()
			b.ReportMetric(float64(n)/took.Seconds(), "permits/s")
			b.ReportMetric(float64(client.Requests()["Txn"])/float64(n), "txn/op")
		})
	}
}
