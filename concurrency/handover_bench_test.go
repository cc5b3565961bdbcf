package concurrency_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// BenchmarkHandover has 128 callers in 8 processes work for a millisecond each under a limit of 10,
// without Handover and with it, and beside that under a channel of ten slots in one process, which is
// the ideal. It reports the part of the limit that was used; the longest time in
// which a process had no permit, beside the time in which its fair share is one; and what the process
// that had the least had of its fair share. An operation is one permit.
func BenchmarkHandover(b *testing.B) {
	const processes, callers, limit, hold = 8, 16, 10, time.Millisecond
	for _, c := range []struct {
		name     string
		handover time.Duration
	}{{"channel", -1}, {"strict", 0}, {"20ms", 20 * time.Millisecond}, {"100ms", 100 * time.Millisecond}} {
		b.Run(c.name, func(b *testing.B) {
			f := shared(b)
			var left, worked atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			var mu sync.Mutex
			longest, least := time.Duration(0), b.N
			begin, slots := make(chan struct{}), make(chan struct{}, limit)
			for range processes {
				acquire := func() (release func() error, err error) {
					slots <- struct{}{}
					return func() error { <-slots; return nil }, nil
				}
				if c.handover >= 0 {
					s, _ := f.Session(nil)
					sm, err := concurrency.NewSemaphore(s, "x", limit, &concurrency.SemaphoreOptions{Handover: c.handover})
					require.NoError(b, err)
					acquire = func() (func() error, error) {
						p, err := sm.Acquire(context.Background())
						return func() error { return p.Release(context.Background()) }, err
					}
				}
				var process sync.WaitGroup
				var last atomic.Int64
				var had atomic.Int64
				for range callers {
					process.Go(func() {
						<-begin
						for left.Add(-1) >= 0 {
							release, err := acquire()
							if err != nil {
								b.Error(err)
								return
							}
							now := time.Now()
							if before := last.Swap(now.UnixNano()); before > 0 {
								mu.Lock()
								longest = max(longest, time.Duration(now.UnixNano()-before))
								mu.Unlock()
							}
							had.Add(1)
							time.Sleep(hold)
							worked.Add(int64(time.Since(now)))
							if err := release(); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Go(func() {
					process.Wait()
					mu.Lock()
					defer mu.Unlock()
					least = min(least, int(had.Load()))
				})
			}
			b.ResetTimer()
			begun := time.Now()
			close(begin)
			all.Wait()
			took := time.Since(begun)
			b.ReportMetric(100*float64(worked.Load())/float64(took*limit), "%used")
			b.ReportMetric(float64(b.N)*100*float64(hold)/float64(took*limit), "%ideal")
			b.ReportMetric(float64(longest.Milliseconds()), "ms-longest")
			b.ReportMetric(100*float64(least*processes)/float64(b.N), "%least")
		})
	}
}
