package concurrency_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// scale is how many keys of a limiter one process uses, and how.
type scale struct {
	seen   int // given to Key
	used   int // of those, whose permit is acquired and released
	active int // whose permit is held at the same time
	waited int // for which a caller waits at the same time
}

// figures are what that costs the process. Bytes are those that the module's functions have
// allocated, without etcd's client and gRPC.
type figures struct {
	seen       int64   // bytes, for all of them
	perActive  int64   // bytes
	perWaited  int64   // bytes
	goroutines float64 // per waiting caller, besides its own
	watches    int     // while all wait
	streams    int
	events     int64 // until all have been granted a permit and have released it
	left       int64 // bytes, when nothing is held or waited for any more

	seenWhere, leftWhere string // the stacks of most of those bytes
}

// measure uses a limiter at that scale, from a process that is alone on its connection. Another
// process holds what is waited for.
func (n scale) measure(t testing.TB) (got figures) {
	t.Helper()
	f, ctx := shared(t), context.Background()
	opts := func() *concurrency.SessionOptions {
		return &concurrency.SessionOptions{TTL: 300 * time.Second, MaxPermits: 1 << 16}
	}
	s, c := f.Session(opts())
	other, _ := f.Session(opts())
	lim, there := keyed(t, s, "llm", 1), keyed(t, other, "llm", 1)
	first := func() { // makes what is made once, and tables for as many requests at a time
		n.round(ctx, t, f, c, keyed(t, s, "first", 1), keyed(t, other, "first", 1), &figures{}, &atomic.Int64{})
	}
	var events atomic.Int64
	c.Inject(embedtest.Fault{Method: "Watch", Times: -1, Match: func(_ string, msg any) bool {
		if r, ok := msg.(*pb.WatchResponse); ok {
			events.Add(int64(len(r.Events)))
		}
		return false
	}})

	first()
	got.seen, got.seenWhere = testkit.Kept(func() {
		for i := range n.seen {
			lim.Key(nthKey("seen", i))
		}
		each(t, n.used, func(i int) error {
			p, err := lim.Key(nthKey("used", i)).Acquire(ctx)
			if err != nil {
				return err
			}
			return p.Release(ctx)
		})
	})
	f.NoKeys("/key/")
	got.left, got.leftWhere = testkit.Kept(func() {
		n.round(ctx, t, f, c, lim, there, &got, &events)
		require.Eventually(t, func() bool { r := c.Requests(); return r["Watch.Cancel"] == r["Watch.Send"]-1 }, soon, 10*time.Millisecond, "no watch remains but the session's")
	})
	return got
}

// round holds and waits for as many keys as n says, and lets go of all of them.
func (n scale) round(ctx context.Context, t testing.TB, f fixture, c *embedtest.Client, lim, there *concurrency.KeyedLimiter, got *figures, events *atomic.Int64) {
	t.Helper()
	held := make([]*concurrency.Permit, n.active)
	before := heap()
	each(t, n.active, func(i int) (err error) {
		held[i], err = lim.Key(nthKey("active", i)).Acquire(ctx)
		return err
	})
	got.perActive = (heap() - before) / int64(n.active)
	require.Len(t, f.Keys("/key/active-"), n.active)
	each(t, n.active, func(i int) error { return held[i].Release(ctx) })
	clear(held)
	f.NoKeys("/key/")

	theirs := make([]*concurrency.Permit, n.waited)
	each(t, n.waited, func(i int) (err error) {
		theirs[i], err = there.Key(nthKey("waited", i)).Acquire(ctx)
		return err
	})
	sent := c.Requests()
	events.Store(0)
	goroutines := runtime.NumGoroutine()
	before = heap()
	ours := make([]<-chan answer, n.waited)
	for i := range ours {
		ours[i] = ask2(ctx, lim.Key(nthKey("waited", i)))
	}
	require.Eventually(t, func() bool {
		now := c.Requests()
		return len(f.Keys("/key/waited-")) == 2*n.waited && now["Watch.Send"]-sent["Watch.Send"] > n.waited && now["Range"]-sent["Range"] > n.waited
	}, soon, 10*time.Millisecond, "all wait, each behind a holder")
	got.perWaited = (heap() - before) / int64(n.waited)
	got.goroutines = float64(runtime.NumGoroutine()-goroutines)/float64(n.waited) - 1
	got.watches, got.streams = c.Requests()["Watch.Send"]-sent["Watch.Send"], c.OpenStreams()["Watch"]
	each(t, n.waited, func(i int) error { return theirs[i].Release(ctx) })
	each(t, n.waited, func(i int) error { return granted(t, ours[i], "its key is free").Release(ctx) })
	f.NoKeys("/key/")
	got.events = events.Load()
}

func nthKey(of string, i int) string { return fmt.Sprintf("%s-%d", of, i) }

// heap returns the bytes of the heap that are reachable.
func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap is that large
}

// each calls fn for every number below n, some at the same time.
func each(t testing.TB, n int, fn func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, 64) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func (g figures) log(t testing.TB, n scale) {
	t.Helper()
	t.Logf("%d keys seen, %d of them used: %d bytes kept", n.seen, n.used, g.seen)
	t.Logf("%d held: %d bytes each, with etcd's in this process", n.active, g.perActive)
	t.Logf("%d waited for: %d bytes each, with etcd's; %.1f goroutines each; %d watches on %d stream, %d events", n.waited, g.perWaited, g.goroutines, g.watches, g.streams, g.events)
	t.Logf("%d bytes kept when all have ended", g.left)
}

// A process keeps nothing of a key that it has used; a key that is waited for costs one watch, on the
// one stream of the session, that receives the events of this key alone. When nothing waits any
// more, no watch is left.
func TestKeyedLimiterMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("watches end five seconds after their last use: 15 s")
	}
	n := scale{seen: 20_000, used: 500, active: 500, waited: 200}
	got := n.measure(t)
	got.log(t, n)
	require.Less(t, got.seen, int64(150<<10), "bytes kept of %d keys:\n%s", n.seen, got.seenWhere)
	require.Less(t, got.left, int64(400<<10), "bytes kept when nothing is held:\n%s", got.leftWhere)
	require.Equal(t, 1, got.streams)
	require.Equal(t, n.waited+1, got.watches, "one for each key, and one of the default")
	require.LessOrEqual(t, got.events, int64(6*n.waited), "each watch receives the events of its own key: at most two puts and two deletions, some twice")
	require.Less(t, got.goroutines, 10.0, "for each key")
}

// BenchmarkKeyedScale prints what a limiter with many keys costs a process: a million are seen, ten
// thousand held at the same time, a thousand waited for.
func BenchmarkKeyedScale(b *testing.B) {
	n := scale{seen: 1_000_000, used: 10_000, active: 10_000, waited: 1000}
	got := n.measure(b)
	got.log(b, n)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(got.seen)/(1<<10), "KiB-kept")
	b.ReportMetric(float64(got.perActive), "B/held")
	b.ReportMetric(float64(got.perWaited), "B/waited")
	b.ReportMetric(got.goroutines, "goroutines/waited")
	b.ReportMetric(float64(got.watches)/float64(n.waited), "watches/waited")
	b.ReportMetric(float64(got.events)/float64(n.waited), "events/waited")
}
