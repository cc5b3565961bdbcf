package concurrency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// BenchmarkKeyed acquires and releases a free permit of a key, and beside it one of a semaphore, turn
// by turn in the same run, with fsync on. With 10,000 keys one permit of each is held meanwhile.
// x-sem is the ratio of the medians. try is TryAcquire and Release.
func BenchmarkKeyed(b *testing.B) {
	ctx := context.Background()
	for _, keys := range []int{1, 10_000} {
		for _, total := range []int{0, 20_000} {
			b.Run(fmt.Sprintf("keys=%d/total=%v", keys, total > 0), func(b *testing.B) {
				c := embedtest.Start(b, &embedtest.Options{Fsync: true, QuotaBytes: 8 << 30})
				session := func() *concurrency.Session {
					return testkit.SessionOn(b, c.NewClient(b, nil).Client, "", &concurrency.SessionOptions{MaxPermits: 1 << 14})
				}
				s := session()
				lim, sm := totaled(b, s, "llm", 10, total), sem(b, s, "free", 10)
				if keys > 1 {
					holder := totaled(b, session(), "llm", 10, total)
					each(b, keys, func(i int) error { _, err := holder.Key(nthKey("k", i)).Acquire(ctx); return err })
				}
				n, next := max(b.N, 100), 0
				once := func(get func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error)) {
					p, err := get(ctx)
					require.NoError(b, err)
					require.NoError(b, p.Release(ctx))
				}
				of := func() *concurrency.Semaphore { next++; return lim.Key(nthKey("k", next%keys)) }
				ours := func() { once(of().Acquire) }
				tries := func() { once(of().TryAcquire) }
				plain := func() { once(sm.Acquire) }
				ours()
				plain()
				var mine, tried, theirs []time.Duration
				b.ResetTimer()
				for range n {
					mine, tried, theirs = append(mine, timed(ours)), append(tried, timed(tries)), append(theirs, timed(plain))
				}
				b.StopTimer()
				median := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[n/2].Nanoseconds()) / 1000 }
				b.ReportMetric(median(mine), "µs-median")
				b.ReportMetric(median(tried), "try-µs-median")
				b.ReportMetric(median(theirs), "sem-µs-median")
				b.ReportMetric(median(mine)/median(theirs), "x-sem")
			})
		}
	}
}

// BenchmarkKeyedContended has 8 sessions, each on a connection of its own and with 8 callers, hold
// permits for 1 ms, and in turn the same with a semaphore of the same limit. One op is one
// permit; x-sem is how many times as many per second there are.
func BenchmarkKeyedContended(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		name         string
		keys         int
		limit, total int
		plain        int // limit of the semaphore
	}{
		{"one key of limit 4", 1, 4, 0, 4},
		{"one key of limit 4, total 4", 1, 4, 4, 4},
		{"10000 keys", 10_000, 4, 0, 1000},
		{"10000 keys, total 1000", 10_000, 4, 1000, 1000},
		{"10000 keys, total 4", 10_000, 4, 4, 4},
	} {
		b.Run(c.name, func(b *testing.B) {
			etcd := embedtest.Start(b, nil)
			var ours, theirs []func() error
			for range 8 {
				s, err := concurrency.NewSession(ctx, etcd.NewClient(b, nil).Client, "bench", nil)
				require.NoError(b, err)
				b.Cleanup(func() { _ = s.Close(ctx) })
				lim, sm := totaled(b, s, "llm", c.limit, c.total), sem(b, s, "plain", c.plain)
				// The work has a length, so that calls wait for each other.
				work := func(context.Context, *concurrency.Permit) error { time.Sleep(time.Millisecond); return nil }
				for range 8 {
					ours = append(ours, func() error { return lim.Key(nthKey("k", rand.N(c.keys))).Do(ctx, work) })
					theirs = append(theirs, func() error { return sm.Do(ctx, work) })
				}
			}
			atOnce(b, ours, len(ours)) // the limit check, the mirrors
			atOnce(b, theirs, len(theirs))
			const turns = 10 // in turn, since the machine may be busier at one time than at another
			n := max(b.N, 500) / turns
			var mine, other time.Duration
			b.ResetTimer()
			for range turns {
				mine += atOnce(b, ours, n)
				other += atOnce(b, theirs, n)
			}
			b.StopTimer()
			b.ReportMetric(float64(turns*n)/mine.Seconds(), "permits/s")
			b.ReportMetric(float64(turns*n)/other.Seconds(), "sem-permits/s")
			b.ReportMetric(other.Seconds()/mine.Seconds(), "x-sem")
		})
	}
}

// atOnce has all functions called again and again at the same time, n times together.
func atOnce(b *testing.B, fns []func() error, n int) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	begun := time.Now()
	for _, fn := range fns {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := fn(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

// BenchmarkKey is what Key itself costs: for a key that is in use, and for new ones.
func BenchmarkKey(b *testing.B) {
	f := shared(b)
	s, _ := f.Session(idle())
	lim := totaled(b, s, "llm", 10, 20)
	b.Run("in use", func(b *testing.B) {
		sm := lim.Key("acme")
		b.ReportAllocs()
		for b.Loop() {
			lim.Key("acme")
		}
		runtime.KeepAlive(sm)
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			lim.Key(nthKey("k", i))
		}
	})
}
