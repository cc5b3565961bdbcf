package concurrency_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcd "go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// BenchmarkContended has 8 sessions, each on a connection of its own, lock one
// mutex for 1 ms at a time, and the same with etcd's own concurrency.Mutex in the
// same run. One op is one lock and unlock; x-etcd is how many times as many per
// second there are.
func BenchmarkContended(b *testing.B) {
	const sessions, hold = 8, time.Millisecond
	ctx := context.Background()
	c := embedtest.Start(b, nil)
	var ours, theirs []func() error
	for range sessions {
		client := c.NewClient(b, nil).Client
		s, err := concurrency.NewSession(ctx, client, "bench", nil)
		require.NoError(b, err)
		b.Cleanup(func() { _ = s.Close(ctx) })
		mu := mutex(b, s, "contended")
		ours = append(ours, func() error {
			return mu.Do(ctx, func(context.Context, *concurrency.Permit) error { time.Sleep(hold); return nil })
		})
		es, err := etcd.NewSession(c.NewClient(b, nil).Client)
		require.NoError(b, err)
		b.Cleanup(func() { _ = es.Close() })
		em := etcd.NewMutex(es, "/contended")
		theirs = append(theirs, func() error {
			if err := em.Lock(ctx); err != nil {
				return err
			}
			time.Sleep(hold)
			return em.Unlock(ctx)
		})
	}
	atOnce(b, ours, sessions) // the limit check, the mirrors
	b.ResetTimer()
	mine := atOnce(b, ours, b.N)
	b.StopTimer()
	n := max(sessions, min(b.N, 200))
	other := atOnce(b, theirs, n)
	perSecond, etcdPerSecond := float64(b.N)/mine.Seconds(), float64(n)/other.Seconds()
	b.ReportMetric(perSecond, "locks/s")
	b.ReportMetric(etcdPerSecond, "etcd-locks/s")
	b.ReportMetric(perSecond/etcdPerSecond, "x-etcd")
}

// BenchmarkUncontended acquires and releases a free permit, and beside it creates
// and deletes a bare key on a lease, turn by turn in the same run, with fsync on.
// The bare key has a name and a value as long as a permit's. x-bare is the ratio of
// the medians of the two, early on and after 100,000 more, or ETCDKIT_LIVES, without
// compaction.
func BenchmarkUncontended(b *testing.B) {
	ctx, lives := context.Background(), 100_000
	if s := os.Getenv("ETCDKIT_LIVES"); s != "" {
		lives, _ = strconv.Atoi(s)
	}
	for _, before := range []int{0, lives} {
		b.Run(fmt.Sprintf("after=%d", before), func(b *testing.B) {
			c := embedtest.Start(b, &embedtest.Options{Fsync: true, QuotaBytes: 8 << 30})
			s, err := concurrency.NewSession(ctx, c.NewClient(b, nil).Client, "bench", nil)
			require.NoError(b, err)
			b.Cleanup(func() { _ = s.Close(ctx) })
			sm := sem(b, s, "free", 10)
			client := c.NewClient(b, nil).Client
			lease, err := client.Grant(ctx, 3600)
			require.NoError(b, err)
			ours := func() {
				p, err := sm.Acquire(ctx)
				require.NoError(b, err)
				require.NoError(b, p.Release(ctx))
			}
			p, err := sm.Acquire(ctx)
			require.NoError(b, err)
			like, err := client.Get(ctx, s.NamespacePrefix()+"semaphore/free/queue/", clientv3.WithPrefix())
			require.NoError(b, err)
			require.NoError(b, p.Release(ctx))
			key, value := "/bare/"+string(like.Kvs[0].Key[len("/bare/"):]), string(like.Kvs[0].Value)
			bare := func() {
				r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
					Then(clientv3.OpPut(key, value, clientv3.WithLease(lease.ID))).Commit()
				require.NoError(b, err)
				require.True(b, r.Succeeded)
				_, err = client.Delete(ctx, key)
				require.NoError(b, err)
			}
			var warm sync.WaitGroup
			for range 10 { // in parallel, for speed
				warm.Go(func() {
					for range before / 10 {
						ours()
					}
				})
			}
			warm.Wait()
			ours()
			bare()
			n := max(b.N, 200)
			mine, base := make([]time.Duration, n), make([]time.Duration, n)
			b.ResetTimer()
			for i := range n {
				mine[i], base[i] = timed(ours), timed(bare)
			}
			b.StopTimer()
			slices.Sort(mine)
			slices.Sort(base)
			b.ReportMetric(float64(mine[n/2].Microseconds()), "µs-median")
			b.ReportMetric(float64(base[n/2].Microseconds()), "bare-µs-median")
			b.ReportMetric(float64(mine[n/2])/float64(base[n/2]), "x-bare")
		})
	}
}

func timed(fn func()) time.Duration {
	t := time.Now()
	fn()
	return time.Since(t)
}
