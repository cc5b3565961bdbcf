package concurrency_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// BenchmarkLostLeaseOfWaiters has a session lose its lease while many of its calls wait,
// 2000 or ETCDKIT_WAITERS, with a TTL of 5 s. It shows how long it takes until all of
// them have queued anew, the Txns that costs for each, and the leases lost on the way.
func BenchmarkLostLeaseOfWaiters(b *testing.B) {
	waiters := 2000
	if s := os.Getenv("ETCDKIT_WAITERS"); s != "" {
		waiters, _ = strconv.Atoi(s)
	}
	for range b.N {
		f := own(b, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		opts := &concurrency.SessionOptions{TTL: 5 * time.Second, MaxPermits: waiters}
		opts, reported := traced(opts)
		s, c := f.Session(opts)
		other, _ := f.Session(nil)
		p := acquire(b, ctx, sem(b, other, "x", 1))
		sm := sem(b, s, "x", 1)
		var calls sync.WaitGroup
		for i := range waiters {
			calls.Go(func() { _, _ = sm.Acquire(ctx) })
			if i%50 == 49 {
				time.Sleep(20 * time.Millisecond) // not all at once
			}
		}
		queue := s.NamespacePrefix() + "semaphore/x/queue/light/"
		queued := func() int64 {
			lease := s.Lease()
			if lease == 0 {
				return 0
			}
			resp, err := f.Client().Get(ctx, queue+fmt.Sprintf("%016x", int64(lease)), clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return 0
			}
			return resp.Count
		}
		until := func() {
			for begun := time.Now(); queued() < int64(waiters); time.Sleep(20 * time.Millisecond) {
				if time.Since(begun) > 60*time.Second {
					b.Errorf("%d of %d have queued after a minute", queued(), waiters)
					return
				}
			}
		}
		until()
		c.ResetRequests()
		lost := len(reported.lost)
		begun := time.Now()
		require.NoError(b, f.RevokeLease(ctx, s.Lease()))
		got(b, reported.lost, "it is lost")
		until()
		b.ReportMetric(time.Since(begun).Seconds(), "s")
		b.ReportMetric(float64(c.Requests()["Txn"])/float64(waiters), "Txn/waiter")
		b.ReportMetric(float64(c.Requests()["Range"])/float64(waiters), "Range/waiter")
		b.ReportMetric(float64(len(reported.lost)-lost+1), "leases-lost")
		cancel()
		calls.Wait()
		_ = p.Release(context.Background())
	}
}
