package concurrency_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A caller that waits costs its process a few KiB and no goroutine besides its own; all of them share one watch.
// BenchmarkCallers has other numbers of callers.
func TestManyCallersWaitForOneName(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of callers queue first")
	}
	c := wait(t, 500)
	t.Logf("%d bytes and %.3f goroutines for each caller besides its own", c.bytes, c.goroutines)
	require.Less(t, c.bytes, int64(9<<9))
	require.Less(t, c.goroutines, 0.05)
	require.Equal(t, map[string]int{"Watch": 1, "LeaseKeepAlive": 1}, c.client.OpenStreams())
	require.Equal(t, 2, c.client.Requests()["Watch.Send"], "that of the session and that of the queue")
}

// A semaphore that is not used holds no watch, no goroutine and few bytes, whether it was used
// before or not.
func TestIdleSemaphoresCostLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of semaphores are used first")
	}
	const n, used = 1000, 100
	f, ctx := shared(t), context.Background()
	s, c := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second})
	use := func(name string) *concurrency.Semaphore {
		sm := sem(t, s, name, 2)
		require.NoError(t, acquire(t, ctx, sm).Release(ctx))
		return sm
	}
	use("first") // makes what is made once
	goroutines := runtime.NumGoroutine()
	sems := make([]*concurrency.Semaphore, n)
	kept, where := testkit.Kept(func() {
		for i := range sems {
			sems[i] = sem(t, s, fmt.Sprint("idle-", i), 2)
		}
		each(t, used, func(i int) error { sems[i] = use(fmt.Sprint("idle-", i)); return nil })
	})
	t.Logf("%d semaphores, %d of them used: %d bytes each", n, used, kept/n)
	require.Less(t, kept/n, int64(3<<10), "bytes of each semaphore:\n%s", where)
	require.Equal(t, 1, c.Requests()["Watch.Send"], "that of the session")
	require.True(t, maps.Equal(map[string]int{"Watch": 1, "LeaseKeepAlive": 1}, c.OpenStreams()), c.OpenStreams())
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+10 }, soon, tick, "goroutines")
	runtime.KeepAlive(sems)
}
