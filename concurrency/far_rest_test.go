package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// A request that followed the queue because another of its session was near sleeps when that is served,
// and its session follows the queue no longer. It would have every event twice when it becomes near.
func TestSleepEndsTheView(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	both, _ := f.tiny(nil)
	sm := sem(t, both, "x", 1)
	first := ask2(ctx, sm)
	f.queued(2)
	line := f.line(blind, 1, 3)
	second := ask2(ctx, sm)
	f.queued(6)
	require.Eventually(t, func() bool { return concurrency.Follows(sm) }, soon, tick)
	require.False(t, concurrency.Sleeps(sm), "the first request is near")

	require.NoError(t, holder.Release(ctx))
	holder = granted(t, first, "it is the first")
	require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
	for range 300 { // without the rule, for 5 s; a pause of the process is one of these looks
		if !concurrency.Follows(sm) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.False(t, concurrency.Follows(sm))
	for _, w := range line {
		require.NoError(t, holder.Release(ctx))
		holder = granted(t, w.ch, "one after the other")
	}
	require.NoError(t, holder.Release(ctx))
	require.NoError(t, granted(t, second, "the last").Release(ctx))
}

// etcd's answer to a read of what is before a far request never comes. The request reads again before
// any other call to etcd would have ended, since its turn may have come.
func TestFarReadIsBounded(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	line := f.line(blind, 1, 3)
	own, c := f.tiny(nil)
	hang := c.Inject(embedtest.Fault{Method: "Txn", Match: readOf(line[2].key), Do: embedtest.HoldResponse})
	ch := ask2(ctx, sem(t, own, "x", 1))
	require.NoError(t, hang.WaitHit(ctx))
	begun := time.Now()
	for _, w := range append(line, sleeper{ch: ch}) {
		require.NoError(t, holder.Release(ctx))
		holder = granted(t, w.ch, "one after the other")
	}
	require.Less(t, time.Since(begun), commit.CallTimeout)
	require.NoError(t, holder.Release(ctx))
}

// W13: a request that waits for long renews the watches of its own keys and of the limit, whether it
// sleeps or follows the queue. An old watch without events would search etcd's history after a lost
// connection.
func TestTrapW13OwnKeysWatchedAnew(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	line := f.line(blind, 1, 2)
	h := blind
	h.Least, h.Most, h.Renew = 0, 0, 40*time.Millisecond
	far, c := f.within(h, nil)
	watches := func(key string) *embedtest.Injection {
		return c.Inject(embedtest.Fault{Method: "Watch", Match: watchOf(key), Times: -1, Do: embedtest.Pass})
	}
	sm := sem(t, far, "x", 1)
	limit := watches(concurrency.LimitKey(sm))
	ch := ask2(ctx, sm)
	require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
	own := watches(concurrency.OwnKeys(sm))
	again := func(when string) {
		l, o := limit.Hits(), own.Hits()
		require.Eventually(t, func() bool { return limit.Hits() > l+1 && own.Hits() > o+1 }, soon, tick, when)
	}
	again("while it sleeps")
	require.NoError(t, holder.Release(ctx))
	holder = granted(t, line[0].ch, "the first")
	require.Eventually(t, func() bool { return !concurrency.Sleeps(sm) }, soon, tick)
	again("while it follows the queue")
	require.LessOrEqual(t, c.OpenStreams()["Watch"], 1)
	require.NoError(t, holder.Release(ctx))
	holder = granted(t, line[1].ch, "the second")
	require.NoError(t, holder.Release(ctx))
	require.NoError(t, granted(t, ch, "the last").Release(ctx))
}
