package concurrency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// greed is a load of keys that always want more than they may have, beside quiet keys.
type greed struct {
	name string
	keys int
	cap  int           // the limit of each
	hold time.Duration // of each of its permits
}

// The quiet keys of BenchmarkFairness, and the total of its limiters.
const (
	fairTotal  = 10
	quietKeys  = 4
	quietEvery = time.Second // the mean time between two requests of one of them
	quietWork  = 50 * time.Millisecond
)

// BenchmarkFairness has quiet keys and greedy ones share a total of 10, and reports how long requests
// of the quiet ones waited, in milliseconds, with all of etcd's latency. A request of 50 ms comes to
// each of four quiet keys about once a second; the greedy ones have as many more waiting as they may
// hold. All rows run at the same time, each with a limiter and sessions of its own, for 20 s or
// ETCDKIT_FAIRNESS. Requests that still wait at the end count with the time that they have waited.
func BenchmarkFairness(b *testing.B) {
	length := 20 * time.Second
	if s := os.Getenv("ETCDKIT_FAIRNESS"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(b, err)
	}
	rows := []greed{
		{name: "none"},
		{name: "1 of limit 8, 1 s holds", keys: 1, cap: 8, hold: time.Second},
		{name: "1 of limit 10, 1 s holds", keys: 1, cap: 10, hold: time.Second},
		{name: "2 of limit 4, 10 s holds", keys: 2, cap: 4, hold: 10 * time.Second},
		{name: "2 of limit 5, 10 s holds", keys: 2, cap: 5, hold: 10 * time.Second},
		{name: "10 of limit 5, 1 s holds", keys: 10, cap: 5, hold: time.Second},
		{name: "100 of limit 5, 1 s holds", keys: 100, cap: 5, hold: time.Second},
	}
	f := own(b, 1)
	results := make([]fairness, len(rows))
	var wg sync.WaitGroup
	for i, r := range rows {
		s, _ := f.Session(nil)
		other, _ := f.Session(nil)
		name := fmt.Sprint("row", i)
		theirs, ours := totaled(b, s, name, 10, fairTotal), totaled(b, other, name, 10, fairTotal)
		wg.Go(func() { results[i] = r.run(b, theirs, ours, length) })
	}
	wg.Wait()
	for i, r := range rows {
		b.Run(r.name, func(b *testing.B) { results[i].report(b) })
	}
}

// fairness is what the quiet keys of one row have seen.
type fairness struct {
	waits  []time.Duration
	served int
	busy   time.Duration // of all slots of the total
	length time.Duration
}

func (g greed) run(b *testing.B, greedy, quiet *concurrency.KeyedLimiter, length time.Duration) fairness {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	got := fairness{length: length}
	var mu sync.Mutex
	held := func(from time.Time) {
		mu.Lock()
		defer mu.Unlock()
		got.busy += time.Since(from)
	}
	var wg sync.WaitGroup
	for i := range g.keys {
		sm := greedy.Key(fmt.Sprint("greedy-", i))
		require.NoError(b, sm.SetLimit(ctx, g.cap, concurrency.CreateLimit()))
		for range 2 * g.cap {
			wg.Go(func() {
				_ = sleep(ctx, rand.N(g.hold)) // they do not come in step
				for ctx.Err() == nil {
					_ = sm.Do(ctx, func(context.Context, *concurrency.Permit) error {
						defer held(time.Now())
						return sleep(ctx, g.hold)
					})
				}
			})
		}
	}
	for i := range quietKeys {
		sm := quiet.Key(fmt.Sprint("quiet-", i))
		wg.Go(func() {
			for sleep(ctx, time.Duration(rand.ExpFloat64()*float64(quietEvery))) == nil {
				wg.Go(func() {
					begun := time.Now()
					served := 1
					p, err := sm.Acquire(ctx)
					if err != nil {
						served = 0
					}
					mu.Lock()
					got.waits, got.served = append(got.waits, time.Since(begun)), got.served+served
					mu.Unlock()
					if err != nil {
						return
					}
					defer held(time.Now())
					_ = sleep(ctx, quietWork)
					_ = p.Release(context.WithoutCancel(ctx))
				})
			}
		})
	}
	wg.Wait()
	return got
}

func (f fairness) report(b *testing.B) {
	require.NotEmpty(b, f.waits)
	slices.Sort(f.waits)
	at := func(p float64) float64 { return float64(f.waits[int(p*float64(len(f.waits)-1))].Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.95), "p95-ms")
	b.ReportMetric(float64(f.served)/float64(len(f.waits))*100, "%served")
	b.ReportMetric(float64(f.busy)/float64(f.length)/fairTotal*100, "%slots-used")
}

// sleep waits that long, or returns ctx's error if it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
