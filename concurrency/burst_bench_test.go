package concurrency_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// BenchmarkBurst has one session with a TTL of 5 s ask for 8000 permits, or
// ETCDKIT_BURST, in the same moment, of a queue in which all are granted or all wait. It
// shows how long it takes until all requests are in etcd, or a lease is lost.
func BenchmarkBurst(b *testing.B) {
	calls := 8000
	if s := os.Getenv("ETCDKIT_BURST"); s != "" {
		calls, _ = strconv.Atoi(s)
	}
	for name, limit := range map[string]int{"granted": calls, "waiting": 1} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				f := own(b, 1)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				opts, reported := traced(&concurrency.SessionOptions{TTL: 5 * time.Second, MaxPermits: calls})
				opts.Hooks = reported.sessions().Hooks() // Close ends more permits than its channel takes
				s, c := f.Session(opts)
				other, _ := f.Session(nil)
				if limit == 1 {
					acquire(b, ctx, sem(b, other, "x", 1))
				} else {
					require.NoError(b, acquire(b, ctx, sem(b, s, "x", limit)).Release(ctx))
				}
				sm := sem(b, s, "x", limit)
				c.ResetRequests()
				var running sync.WaitGroup
				begun := time.Now()
				for range calls {
					running.Go(func() { _, _ = sm.Acquire(ctx) })
				}
				queued := func() int64 {
					resp, err := f.Client().Get(ctx, s.NamespacePrefix()+"semaphore/x/queue/", clientv3.WithPrefix(), clientv3.WithCountOnly())
					require.NoError(b, err)
					return resp.Count
				}
				for ; queued() < int64(calls) && len(reported.lost) == 0 && time.Since(begun) < time.Minute; time.Sleep(50 * time.Millisecond) {
				}
				b.ReportMetric(time.Since(begun).Seconds(), "s")
				b.ReportMetric(float64(c.Requests()["Txn"])/float64(calls), "Txn/call")
				b.ReportMetric(float64(len(reported.lost)), "leases-lost")
				cancel()
				running.Wait()
			}
		})
	}
}
