package concurrency_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// callers are callers of one session that wait for one name, behind the holder of another session.
type callers struct {
	fixture
	client  *embedtest.Client // of the session
	n       int
	holder  *concurrency.Permit
	prefix  string
	cancels []context.CancelFunc
	ended   []chan error
	granted chan *concurrency.Permit
	running sync.WaitGroup

	bytes      int64   // kept for each, without etcd's client
	stack      int64   // of each goroutine
	goroutines float64 // for each, besides its own
}

// wait has n callers wait.
func wait(t testing.TB, n int) *callers {
	t.Helper()
	f, ctx := own(t, 1), context.Background()
	opts := func() *concurrency.SessionOptions {
		return &concurrency.SessionOptions{TTL: 300 * time.Second, MaxPermits: n + 1}
	}
	s, client := f.Session(opts())
	other, _ := f.Session(opts())
	sm, there := sem(t, s, "crowd", 1), sem(t, other, "crowd", 1)
	c := &callers{
		fixture: f, client: client, n: n, prefix: s.NamespacePrefix() + "semaphore/crowd/queue/",
		cancels: make([]context.CancelFunc, n), ended: make([]chan error, n), granted: make(chan *concurrency.Permit, n),
	}
	p, err := sm.Acquire(ctx) // what is made once
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
	c.holder, err = there.Acquire(ctx)
	require.NoError(t, err)
	var before, after runtime.MemStats
	goroutines := runtime.NumGoroutine()
	runtime.ReadMemStats(&before)
	bytes, _ := testkit.Kept(func() {
		for i := range n {
			ctx, cancel := context.WithCancel(ctx)
			c.cancels[i], c.ended[i] = cancel, make(chan error, 1)
			c.running.Go(func() {
				p, err := sm.Acquire(ctx)
				if err == nil {
					c.granted <- p
				}
				c.ended[i] <- err
			})
		}
		c.queued(n + 1)
	})
	runtime.ReadMemStats(&after)
	c.bytes = bytes / int64(n)
	c.stack = (int64(after.StackInuse) - int64(before.StackInuse)) / int64(n) //nolint:gosec // no stacks are that large
	c.goroutines = float64(runtime.NumGoroutine()-goroutines)/float64(n) - 1
	t.Cleanup(func() {
		for _, cancel := range c.cancels {
			cancel()
		}
		c.running.Wait()
	})
	return c
}

// queued waits until as many requests are in etcd.
func (c *callers) queued(n int) {
	c.T.Helper()
	require.Eventually(c.T, func() bool {
		resp, err := c.Client().Get(context.Background(), c.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && resp.Count == int64(n)
	}, 3*time.Minute, tick, "%d requests are queued", n)
}

// cancelSome cancels k of them, from the middle of the queue, one after the other, and returns what
// that takes: until the call has returned, and until its request is gone.
func (c *callers) cancelSome(k int) (returned, gone time.Duration) {
	c.T.Helper()
	r, g := make([]time.Duration, k), make([]time.Duration, k)
	for j := range k {
		i := c.n/4 + j*c.n/(2*k)
		begun := time.Now()
		c.cancels[i]()
		require.ErrorIs(c.T, <-c.ended[i], context.Canceled)
		r[j] = time.Since(begun)
		c.queued(c.n - j)
		g[j] = time.Since(begun)
	}
	slices.Sort(r)
	slices.Sort(g)
	return r[k/2], g[k/2]
}

// BenchmarkCallers prints what callers that wait for one name cost their process.
func BenchmarkCallers(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
			c := wait(b, n)
			const k = 50
			returned, gone := c.cancelSome(k)
			require.NoError(b, c.holder.Release(context.Background()))
			const grants = 50
			begun := time.Now()
			for range grants {
				require.NoError(b, (<-c.granted).Release(context.Background()))
			}
			took := time.Since(begun) / grants
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(c.bytes), "B/caller")
			b.ReportMetric(float64(c.stack), "stack-B/caller")
			b.ReportMetric(c.goroutines, "goroutines/caller")
			b.ReportMetric(float64(returned.Microseconds()), "µs/cancel")
			b.ReportMetric(float64(gone.Microseconds()), "µs/gone")
			b.ReportMetric(float64(took.Microseconds()), "µs/grant")
		})
	}
}
