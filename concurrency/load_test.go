package concurrency_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// The load budget of docs/operations.md, operation by operation: requests by
// method, Raft entries and revisions, exactly. TestLoadBudget has the crowd.
func TestLoadBudgetOfEachOperation(t *testing.T) {
	t.Parallel()
	type load = map[string]int
	f := own(t, 1)
	ctx := ctxT(t)
	c, elsewhere := f.NewClient(t), f.NewClient(t)
	opts := func() *concurrency.SessionOptions { // no renewal and no refresh while we count
		return &concurrency.SessionOptions{TTL: 300 * time.Second, Prefix: f.prefix}
	}
	count := func(what string, want load, entries, revisions int, fn func()) {
		t.Helper()
		c.ResetRequests()
		index := f.RaftIndex()
		rev, err := f.Revision(ctx)
		require.NoError(t, err)
		fn()
		var got load
		same := func() bool {
			got = c.Requests()
			delete(got, "Watch.Cancel") // or the stream ends first
			return maps.Equal(want, got)
		}
		for end := time.Now().Add(soon); !same() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, want, got, what)
		require.EqualValues(t, entries, f.RaftIndex()-index, "Raft entries of %s", what)
		now, err := f.Revision(ctx)
		require.NoError(t, err)
		require.EqualValues(t, revisions, now-rev, "revisions of %s", what)
	}
	var s *concurrency.Session
	var err error
	count("a new session", load{"LeaseGrant": 1, "Txn": 1, "Range": 1, "Watch": 1, "Watch.Send": 1, "LeaseKeepAlive": 1, "LeaseKeepAlive.Send": 1}, 2, 1, func() {
		s, err = concurrency.NewSession(ctx, c.Client, "test", opts())
		require.NoError(t, err)
	})
	far, err := concurrency.NewSession(ctx, elsewhere.Client, "test", opts())
	require.NoError(t, err)
	defer far.Close(ctx)
	sm, there := sem(t, s, "x", 2), sem(t, far, "x", 2)

	var p, q *concurrency.Permit
	count("the first acquire of a new name", load{"Range": 2, "Txn": 2}, 2, 2, func() { p = acquire(t, ctx, sm) })
	count("the first acquire of this value", load{"Range": 1, "Txn": 1}, 1, 1, func() { q = acquire(t, ctx, sem(t, s, "x", 2)) })
	require.NoError(t, q.Release(ctx))
	count("an acquire", load{"Txn": 1}, 1, 1, func() { q = acquire(t, ctx, sm) })
	count("a release", load{"Txn": 1}, 1, 1, func() { require.NoError(t, q.Release(ctx)) })
	count("an acquire with an ID", load{"Txn": 1}, 1, 1, func() { q = acquire(t, ctx, sm, concurrency.ID("i")) })
	count("a release with an ID", load{"Txn": 1}, 1, 1, func() { require.NoError(t, q.Release(ctx)) })
	count("a granted try", load{"Range": 1, "Txn": 1}, 1, 1, func() { q, err = sm.TryAcquire(ctx); require.NoError(t, err) })
	count("a refused try", load{"Range": 1}, 0, 0, func() { _, err = sm.TryAcquire(ctx); require.ErrorIs(t, err, concurrency.ErrFull) })
	require.NoError(t, q.Release(ctx))
	require.NoError(t, p.Release(ctx))
	count("a heavy acquire", load{"Txn": 1}, 1, 1, func() { p = acquire(t, ctx, sm, concurrency.Weight(2)) })
	require.NoError(t, p.Release(ctx))
	count("a status", load{"Range": 1}, 0, 0, func() { _, err = sm.Status(ctx); require.NoError(t, err) })
	count("raising the limit", load{"Range": 1, "Txn": 1}, 1, 1, func() { require.NoError(t, sm.SetLimit(ctx, 3)) })
	count("lowering the limit", load{"Range": 1, "Txn": 2}, 2, 2, func() { require.NoError(t, sm.SetLimit(ctx, 2)) })

	q = acquire(t, ctx, there, concurrency.ID("i"))
	// The victim's session removes the notice that it was left.
	count("an eviction by ID", load{"Range": 2, "Txn": 1}, 2, 2, func() {
		require.NoError(t, sm.Evict(ctx, "i", ""))
		closed(t, q.Lost(), "the word comes")
		f.noKeys("notice/")
	})
	q = acquire(t, ctx, there)
	count("an eviction by token", load{"Range": 1, "Txn": 1}, 2, 2, func() {
		require.NoError(t, sm.EvictToken(ctx, q.Token(), ""))
		closed(t, q.Lost(), "the word comes")
		f.noKeys("notice/")
	})

	q = acquire(t, ctx, there, concurrency.Weight(2))
	count("the first wait", load{"Txn": 1, "Range": 1, "Watch.Send": 1}, 2, 2, func() {
		w := ask2(ctx, sm)
		require.Eventually(t, func() bool { return len(f.keys("queue/")) == 2 && c.Requests()["Range"] == 1 }, soon, time.Millisecond)
		require.NoError(t, q.Release(ctx)) // from elsewhere
		p = granted(t, w, "the next")
	})
	require.NoError(t, p.Release(ctx))
	require.Equal(t, load{"Watch": 1, "LeaseKeepAlive": 1}, c.OpenStreams())
	count("closing the session", load{"LeaseRevoke": 1}, 1, 1, func() { require.NoError(t, s.Close(ctx)) })
}

// A renewal is one message on the stream that is open anyway, every third of the
// TTL, and no Raft entry. What a session watches it lists anew once per TTL or so.
func TestLoadBudgetOfRenewals(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	_, c := f.session(quick())
	require.Eventually(t, func() bool { return c.Requests()["Range"] > 0 }, soon, time.Millisecond)
	index, begun := f.RaftIndex(), time.Now()
	c.ResetRequests()
	require.Eventually(t, func() bool { return c.Requests()["LeaseKeepAlive.Send"] >= 4 }, soon, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), 900*time.Millisecond)
	require.Equal(t, index, f.RaftIndex())
	require.Zero(t, c.Requests()["LeaseKeepAlive"], "no new stream")
	require.Eventually(t, func() bool { return c.Requests()["Range"] > 0 }, soon, time.Millisecond)
	require.LessOrEqual(t, c.Requests()["Range"], 1+int(time.Since(begun)/(500*time.Millisecond)))
}

// F42: the load of waiting: one watch per process and name, whoever waits, and a
// release costs one Txn.
func TestLoadBudget(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // stores the limit
	// The limit was read twice, and the session lists its own range once.
	require.Eventually(t, func() bool { return c.Requests()["Range"] == 3 }, soon, time.Millisecond)
	count := func(what string, want map[string]int, entries uint64, fn func()) {
		t.Helper()
		c.ResetRequests()
		index := f.RaftIndex()
		fn()
		got := c.Requests()
		for _, quiet := range []string{"LeaseKeepAlive.Send", "LeaseKeepAlive"} {
			delete(got, quiet)
		}
		for method, n := range got {
			require.LessOrEqual(t, n, want[method], "%s: %s in %v", what, method, got)
		}
		require.LessOrEqual(t, f.RaftIndex()-index, entries, "Raft entries of %s", what)
	}
	var p *concurrency.Permit
	count("an uncontended acquire", map[string]int{"Txn": 1}, 1, func() { p = acquire(t, ctx, sm) })
	count("a refused try", map[string]int{"Range": 1}, 0, func() {
		_, err := sm.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
	})
	var w []<-chan answer
	count("64 waiters", map[string]int{"Txn": 64, "Range": 1, "Watch.Send": 1}, 64, func() {
		for range 64 {
			w = append(w, ask2(ctx, sm))
		}
		require.Eventually(t, func() bool { return len(f.keys("queue/")) == 65 && c.Requests()["Range"] > 0 }, soon, time.Millisecond)
	})
	next := make(chan *concurrency.Permit, 64)
	for _, ch := range w {
		go func() {
			a := <-ch
			assertNoError(t, a.err)
			next <- a.p
		}()
	}
	for range w {
		count("a release with waiters", map[string]int{"Txn": 1}, 1, func() {
			require.NoError(t, p.Release(ctx))
			p = got(t, next, "the next in the queue")
		})
	}
	require.NoError(t, p.Release(ctx))
	require.Equal(t, 1, c.OpenStreams()["Watch"])
	require.Equal(t, 1, c.OpenStreams()["LeaseKeepAlive"])
}
