package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// A request that followed the queue because another of its session was near sleeps when that is served,
// and its session follows the queue no longer. It would have every event twice when it becomes near.
func TestSleepEndsTheView(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	holder := acquire(t, ctx, sem(t, s, "x", 1))
	h := blind
	h.Large = 100
	both, _ := f.within(h, nil)
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

// W3: a limit is lowered, and then a holder leaves. A process that follows the front of the queue sees
// only the second, since the watch of the limit has lost the change. Its request is admitted by the new limit.
func TestTrapW3LimitLoweredUnseen(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	others := sem(t, s, "x", 2)
	holders := []*concurrency.Permit{acquire(t, ctx, others), acquire(t, ctx, others)}
	near := rank.Horizon{Limits: 1000, Crowd: 1, Watched: 1, Gone: 1, Look: time.Hour, Renew: time.Hour}
	own, c := f.within(near, nil)
	sm := sem(t, own, "x", 2)
	ch := ask2(ctx, sm)
	require.Eventually(t, func() bool { return concurrency.InFront(sm) == 2 }, soon, tick)
	lost := c.Inject(embedtest.Fault{Method: "Watch", Times: -1, Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.WatchResponse)
		return ok && len(r.Events) > 0 && string(r.Events[0].Kv.Key) == concurrency.LimitKey(sm)
	}})
	for c.Requests()["Txn"] > 0 { // the watch of the limit, which has just begun, has the queue listed again
		c.ResetRequests()
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, others.SetLimit(ctx, 1))
	require.NoError(t, lost.WaitHit(ctx))
	require.NoError(t, holders[0].Release(ctx))
	require.Eventually(t, func() bool { return concurrency.InFront(sm) == 1 || len(ch) > 0 }, soon, tick)
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, ch, "the limit is 1, and the other one holds")
	require.NoError(t, holders[1].Release(ctx))
	require.NoError(t, granted(t, ch, "it is the next").Release(ctx))
}

// W3: a request follows the front of the queue, by a watch that does not bring the limit. A limit that is
// raised admits it all the same.
func TestTrapW3LimitRaisedUnseen(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	others := sem(t, s, "x", 1)
	holder := acquire(t, ctx, others)
	own, c := f.within(rank.Horizon{Limits: 1000, Crowd: 1, Watched: 1, Gone: 1, Look: time.Hour, Renew: time.Hour}, nil)
	sm := sem(t, own, "x", 1)
	limit := c.Inject(embedtest.Fault{Method: "Watch", Match: watchOf(concurrency.LimitKey(sm)), Do: embedtest.Pass})
	created := c.Inject(embedtest.Fault{Method: "Watch", Times: -1, Do: embedtest.Pass, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.WatchResponse)
		return ok && r.Created
	}})
	ch := ask2(ctx, sm)
	require.Eventually(t, func() bool { return concurrency.InFront(sm) == 1 }, soon, tick)
	require.NoError(t, limit.WaitHit(ctx))
	require.Eventually(t, func() bool { return created.Hits() >= c.Requests()["Watch.Send"] }, soon, tick, "all watches have begun, that of the limit too")
	require.NoError(t, others.SetLimit(ctx, 2))
	require.NoError(t, granted(t, ch, "it fits the new limit").Release(ctx))
	require.NoError(t, holder.Release(ctx))
}
