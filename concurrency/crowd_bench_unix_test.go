//go:build unix

package concurrency_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	etcd "go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// BenchmarkCrowd has 8 to 512 sessions, each on a connection of its own, wait for one queue without
// holding what they get, and beside it etcd's own concurrency.Mutex, turn by turn in the same run. One op
// is a round of ETCDKIT_CROWD (2s) for each; x-etcd is how many times as many locks per second there are,
// median against median. cpu-µs is what a lock costs clients and server together, which a busy machine
// changes less than the rate; the others are what ours requests of etcd for each.
func BenchmarkCrowd(b *testing.B) {
	span := 2 * time.Second
	if d, err := time.ParseDuration(os.Getenv("ETCDKIT_CROWD")); err == nil {
		span = d
	}
	for _, processes := range []int{8, 64, 256, 512} {
		for _, limit := range []int{0, 1, 10} {
			name := fmt.Sprintf("limit=%d", limit)
			if limit == 0 {
				name = "mutex"
			}
			b.Run(fmt.Sprintf("%s/processes=%d", name, processes), func(b *testing.B) { crowd(b, processes, limit, span) })
		}
	}
}

func crowd(b *testing.B, processes, limit int, span time.Duration) {
	ctx := context.Background()
	c := embedtest.Start(b, &embedtest.Options{QuotaBytes: 8 << 30})
	var ours, theirs []func(context.Context) error
	var clients []*embedtest.Client
	for range processes {
		client := c.NewClient(b, nil)
		clients = append(clients, client)
		s, err := concurrency.NewSession(ctx, client.Client, "bench", &concurrency.SessionOptions{TTL: time.Minute})
		require.NoError(b, err)
		b.Cleanup(func() { _ = s.Close(ctx) })
		empty := func(context.Context, *concurrency.Permit) error { return nil }
		if limit == 0 {
			mu := mutex(b, s, "crowd")
			ours = append(ours, func(ctx context.Context) error { return mu.Do(ctx, empty) })
		} else {
			sm := sem(b, s, "crowd", limit)
			ours = append(ours, func(ctx context.Context) error { return sm.Do(ctx, empty) })
		}
	}
	if limit < 2 {
		for range processes {
			es, err := etcd.NewSession(c.NewClient(b, nil).Client)
			require.NoError(b, err)
			b.Cleanup(func() { _ = es.Close() })
			em := etcd.NewMutex(es, "/crowd")
			theirs = append(theirs, func(ctx context.Context) error {
				if err := em.Lock(ctx); err != nil {
					return err
				}
				return em.Unlock(context.WithoutCancel(ctx))
			})
		}
	}
	requests := func() (n map[string]int) {
		n = map[string]int{}
		for _, c := range clients {
			for k, v := range c.Requests() {
				n[k] += v
			}
		}
		return n
	}
	var mine, other, cost, otherCost []float64
	b.ResetTimer()
	for range b.N {
		var before, after map[string]int
		var spent time.Duration
		rate, all := during(ours, span, func() { before, spent = requests(), cpu() }, func() { after, spent = requests(), cpu()-spent })
		mine, cost = append(mine, rate), append(cost, float64(spent.Microseconds())/float64(all))
		for _, k := range []string{"Txn", "Range", "Watch.Send"} {
			b.ReportMetric(float64(after[k]-before[k])/float64(all), k+"/lock")
		}
		if theirs != nil {
			rate, all := during(theirs, span, func() { spent = cpu() }, func() { spent = cpu() - spent })
			other, otherCost = append(other, rate), append(otherCost, float64(spent.Microseconds())/float64(all))
		}
	}
	b.StopTimer()
	median := func(of []float64) float64 { slices.Sort(of); return of[len(of)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(mine), "locks/s")
	b.ReportMetric(median(cost), "cpu-µs")
	if theirs != nil {
		b.ReportMetric(median(other), "etcd-locks/s")
		b.ReportMetric(median(otherCost), "etcd-cpu-µs")
		b.ReportMetric(median(mine)/median(other), "x-etcd")
	}
}

// cpu returns the time that this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// during has each of the callers lock and unlock again and again, and returns how often that happened
// in a second; all are those of that time. It begins when each has had two turns.
func during(callers []func(context.Context) error, span time.Duration, begin, end func()) (rate float64, all int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var n atomic.Int64
	var running sync.WaitGroup
	for _, lock := range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				if lock(ctx) == nil {
					n.Add(1)
				}
			}
		})
	}
	for begun := time.Now(); n.Load() < 2*int64(len(callers)) && time.Since(begun) < 10*span; {
		time.Sleep(span / 20)
	}
	begin()
	from, begun := n.Load(), time.Now()
	time.Sleep(span)
	all = n.Load() - from
	rate = float64(all) / time.Since(begun).Seconds()
	end()
	cancel()
	running.Wait()
	return rate, all
}
