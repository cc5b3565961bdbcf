package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Many calls with MaxWaiters at the same time cost etcd a few requests each, not a dozen, although each request that
// comes breaks the condition on which the others are written. Those that are refused found the queue full.
func TestMaxWaitersInACrowd(t *testing.T) {
	t.Parallel()
	const processes, callers, limit, most, each = 3, 10, 7, 5, 10
	f, ctx := shared(t), ctxT(t)
	var all sync.WaitGroup
	var granted, refused atomic.Int64
	var clients []*embedtest.Client
	for range processes {
		s, c := f.Session(nil)
		sm := sem(t, s, "x", limit)
		require.NoError(t, acquire(t, ctx, sm).Release(ctx))
		c.ResetRequests()
		clients = append(clients, c)
		for range callers {
			all.Go(func() {
				for range each {
					p, err := sm.Acquire(ctx, concurrency.MaxWaiters(most))
					if full := (*concurrency.FullError)(nil); errors.As(err, &full) {
						refused.Add(1)
						if full.Limit != limit || full.Waiting < most {
							t.Errorf("refused by %+v", *full)
						}
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					granted.Add(1)
					time.Sleep(2 * time.Millisecond)
					if err := p.Release(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	requests := 0
	for _, c := range clients {
		requests += c.Requests()["Txn"] + c.Requests()["Range"]
	}
	t.Logf("%d granted, %d refused, %d requests", granted.Load(), refused.Load(), requests)
	require.Less(t, requests, 8*processes*callers*each)
	f.NoKeys("queue/")
}

// BenchmarkMaxWaiters has 30 callers in 3 processes work for 5 ms each under a limit of 7. A call that is refused is
// repeated after a while. It reports the requests that each permit costs.
func BenchmarkMaxWaiters(b *testing.B) {
	const processes, callers, limit, hold = 3, 10, 7, 5 * time.Millisecond
	for _, most := range []int{-1, 5, 15} {
		b.Run(fmt.Sprint(most), func(b *testing.B) {
			f, ctx := shared(b), context.Background()
			var left, refused atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			begin, requests := make(chan struct{}), func(string) (n int) { return n }
			for range processes {
				s, c := f.Session(nil)
				sm := sem(b, s, "x", limit)
				p, err := sm.Acquire(ctx)
				require.NoError(b, err)
				require.NoError(b, p.Release(ctx))
				c.ResetRequests()
				others := requests
				requests = func(method string) int { return others(method) + c.Requests()[method] }
				var opts []concurrency.AcquireOption
				if most >= 0 {
					opts = append(opts, concurrency.MaxWaiters(most))
				}
				for range callers {
					all.Go(func() {
						<-begin
						for left.Add(-1) >= 0 {
							p, err := sm.Acquire(ctx, opts...)
							for errors.Is(err, concurrency.ErrFull) {
								refused.Add(1)
								time.Sleep(hold)
								p, err = sm.Acquire(ctx, opts...)
							}
							if err != nil {
								b.Error(err)
								return
							}
							time.Sleep(hold)
							if err := p.Release(ctx); err != nil {
								b.Error(err)
							}
						}
					})
				}
			}
			b.ResetTimer()
			close(begin)
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "permits/s")
			b.ReportMetric(float64(requests("Txn"))/float64(b.N), "Txn/permit")
			b.ReportMetric(float64(requests("Range"))/float64(b.N), "Range/permit")
			b.ReportMetric(float64(refused.Load())/float64(b.N), "refused/permit")
		})
	}
}

// A297 in internal/proof/tested-failures.md: the greatest number is no bound. Added to the limit it was below zero, and
// every call was refused.
func TestMaxWaitersWithoutABound(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	keyed := func(name string, total int) *concurrency.Semaphore {
		l, err := concurrency.NewKeyedLimiter(s, name, 1, &concurrency.KeyedLimiterOptions{Total: total, MaxTotalWaiters: math.MaxInt})
		require.NoError(t, err)
		return l.Key("a")
	}
	for name, sm := range map[string]*concurrency.Semaphore{"a semaphore": sem(t, s, "x", 1), "a key": keyed("keys", 9), "a key of a large total": keyed("many", 1000)} {
		first := acquire(t, ctx, sm) // from here on the session knows the limit
		require.NoError(t, first.Release(ctx), name)
		most := concurrency.MaxWaiters(math.MaxInt)
		holder, err := sm.Acquire(ctx, most)
		require.NoError(t, err, name)
		next := ask(t, ctx, sm, most)
		require.NoError(t, holder.Release(ctx))
		require.NoError(t, granted(t, next, name).Release(ctx))
	}
}
