package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/cost"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

type load = cost.Load

// The costs in docs/storage.md, row by row. TestLoadBudget has the crowd,
// the two after this one what continues by itself.
func TestLoadBudgetOfEachOperation(t *testing.T) {
	t.Parallel()
	f, ctx := own(t, 1), ctxT(t)
	b := cost.New(ctx, t, f.Cluster)
	c, elsewhere := f.NewClient(t, nil), f.NewClient(t, nil)
	opts := func() *concurrency.SessionOptions { // no renewal and no refresh while we count
		return &concurrency.SessionOptions{TTL: 300 * time.Second, Prefix: f.Root}
	}
	var s *concurrency.Session
	var err error
	b.Count("`NewSession`", c, load{"LeaseGrant": 1, "MemberList": 1, "Txn": 1, "Range": 1, "Watch": 1, "Watch.Send": 1, "LeaseKeepAlive": 1, "LeaseKeepAlive.Send": 1}, 2, 1, func() {
		s, err = concurrency.NewSession(ctx, c.Client, "test", opts())
		require.NoError(t, err)
	})
	far, err := concurrency.NewSession(ctx, elsewhere.Client, "test", opts())
	require.NoError(t, err)
	defer far.Close(ctx)
	b.Started(elsewhere)
	sm, there := sem(t, s, "x", 2), sem(t, far, "x", 2)

	var p, q *concurrency.Permit
	release := func(p *concurrency.Permit) {
		t.Helper()
		b.Count("`Release`", c, load{"Txn": 1}, 1, 1, func() { require.NoError(t, p.Release(ctx)) })
	}
	b.Count("the first `Acquire` of a new name", c, load{"Range": 2, "Txn": 2}, 2, 2, func() { p = acquire(t, ctx, sm) })
	b.Count("the first `Acquire` of a `Semaphore` value", c, load{"Range": 1, "Txn": 1}, 1, 1, func() { q = acquire(t, ctx, sem(t, s, "x", 2)) })
	release(q)
	const free = "`Acquire`, `Lock`, whether they wait or not"
	b.Count(free, c, load{"Txn": 1}, 1, 1, func() { q = acquire(t, ctx, sm, concurrency.ID("i")) })
	release(q)
	b.Count(free, c, load{"Txn": 1}, 1, 1, func() { q = lock(t, s, "a mutex") })
	release(q)
	const bounded, refused = "`TryAcquire`, `TryLock`, `MaxWaiters`", "these, refused"
	b.Count(bounded, c, load{"Range": 1, "Txn": 1}, 1, 1, func() { q, err = sm.TryAcquire(ctx); require.NoError(t, err) })
	b.Count(refused, c, load{"Range": 1}, 0, 0, func() { _, err = sm.TryAcquire(ctx); require.ErrorIs(t, err, concurrency.ErrFull) })
	release(q)
	b.Count(bounded, c, load{"Range": 1, "Txn": 1}, 1, 1, func() { q, err = mutex(t, s, "a mutex").TryLock(ctx); require.NoError(t, err) })
	release(q)
	b.Count(bounded, c, load{"Range": 1, "Txn": 1}, 1, 1, func() { q = acquire(t, ctx, sm, concurrency.MaxWaiters(1)) })
	release(p)
	release(q)
	b.Count(free, c, load{"Txn": 1}, 1, 1, func() { p = acquire(t, ctx, sm, concurrency.Weight(2)) })
	release(p)
	b.Count("`Status`, `Leader`", c, load{"Range": 1}, 0, 0, func() { _, err = sm.Status(ctx); require.NoError(t, err) })
	b.Count("`SetLimit`", c, load{"Range": 1, "Txn": 1}, 1, 1, func() { require.NoError(t, sm.SetLimit(ctx, 3)) })
	b.Count("`SetLimit` that lowers", c, load{"Range": 1, "Txn": 2}, 2, 2, func() { require.NoError(t, sm.SetLimit(ctx, 2)) })

	// Another process's permit ends early. Its session removes the notice that it
	// was left.
	ends := func(name string, want load, end func(*concurrency.Permit) error, opts ...concurrency.AcquireOption) {
		t.Helper()
		q := acquire(t, ctx, there, opts...)
		elsewhere.ResetRequests()
		b.Count(name, c, want, 2, 2, func() {
			require.NoError(t, end(q))
			closed(t, q.Context().Done(), "the word comes")
			f.NoKeys("notice/")
		})
		require.Equal(t, load{"Txn": 1}, elsewhere.Requests(), "for the session that gets the notice")
	}
	const byID = "`Evict`, `ReleaseID`, and 1 Txn of the holder's session"
	ends(byID, load{"Range": 2, "Txn": 1}, func(*concurrency.Permit) error { return sm.Evict(ctx, "i", "") }, concurrency.ID("i"))
	ends(byID, load{"Range": 2, "Txn": 1}, func(*concurrency.Permit) error { return sm.ReleaseID(ctx, "i") }, concurrency.ID("i"))
	ends("`ReleaseID` with `OnlyToken`, and 1 Txn of the holder's session", load{"Range": 4, "Txn": 1}, func(p *concurrency.Permit) error {
		return sm.ReleaseID(ctx, "i", concurrency.OnlyToken(p.Token()))
	}, concurrency.ID("i"))
	byToken := func(p *concurrency.Permit) error { return sm.EvictToken(ctx, p.Token(), "") }
	ends("`EvictToken`, and 1 Txn of the holder's session", load{"Range": 1, "Txn": 1}, byToken)
	ends("`EvictToken` of a request with an `ID`, and 1 Txn of the holder's session", load{"Range": 2, "Txn": 1}, byToken, concurrency.ID("i"))

	el := election(t, s, "an election")
	const campaigns = "`Campaign` as the first of a session and name"
	b.Count(campaigns, c, load{"Txn": 1, "Range": 1, "Watch.Send": 1}, 1, 1, func() { q, err = el.Campaign(ctx); require.NoError(t, err) })
	b.Count("`Status`, `Leader`", c, load{"Range": 1}, 0, 0, func() { require.Equal(t, q.Token(), leader(t, el).Token) })
	b.Count("`Status` with `CheckLeases`, for one lease that holds", c, load{"LeaseTimeToLive": 1, "Range": 1}, 0, 0, func() {
		st, err := el.Status(ctx, concurrency.CheckLeases())
		require.NoError(t, err)
		require.False(t, st.Holders[0].Renewed.IsZero())
	})
	elsewhere.ResetRequests()
	b.Count("`StepDown`, and 1 Txn of the leader's session", elsewhere, load{"Range": 1, "Txn": 1}, 2, 2, func() {
		_, err = election(t, far, "an election").StepDown(ctx, "")
		require.NoError(t, err)
		closed(t, q.StopRequested().Done(), "the word comes")
		f.NoKeys("stop/")
	})
	release(q)
	b.Count("`Campaign` otherwise", c, load{"Txn": 1}, 1, 1, func() { q, err = el.Campaign(ctx); require.NoError(t, err) })
	release(q)

	q = acquire(t, ctx, there, concurrency.Weight(2))
	var w [3]<-chan answer
	waiting := func(i int, opts ...concurrency.AcquireOption) func() {
		return func() {
			w[i] = ask2(ctx, sm, opts...)
			require.Eventually(t, func() bool { return len(f.Keys("queue/")) == i+2 }, soon, 5*time.Millisecond)
		}
	}
	b.Count("`Acquire`, `Lock` as the first of a session and name to wait", c, load{"Txn": 1, "Range": 1, "Watch.Send": 1}, 1, 1, waiting(0))
	b.Count(free, c, load{"Txn": 1}, 1, 1, waiting(1))
	b.Count(bounded, c, load{"Range": 1, "Txn": 1}, 1, 1, waiting(2, concurrency.MaxWaiters(3)))
	b.Count(refused, c, load{"Range": 1}, 0, 0, func() {
		_, err = sm.Acquire(ctx, concurrency.MaxWaiters(3))
		require.ErrorIs(t, err, concurrency.ErrFull)
	})
	require.NoError(t, q.Release(ctx))
	// For the second the view is listed once more, since a heavy request was before it.
	first, second := granted(t, w[0], "the next"), granted(t, w[1], "the next")
	release(first)
	release(granted(t, w[2], "the next"))
	release(second)
	b.Count("`Queues`, while there are up to 500 keys of each kind", c, load{"Range": 5}, 0, 0, func() {
		for _, err := range s.Queues(ctx) {
			require.NoError(t, err)
		}
	})
	f.streams(c)
	b.Count("`Close`", c, load{"LeaseRevoke": 1}, 1, 1, func() { require.NoError(t, s.Close(ctx)) })

	b.CheckDoc("../docs/storage.md", "## Load")
}

// Reports to Trace.Waiting ask nothing for a caller's first one. Later ones ask for
// the lease of each holder that they show, once at most.
func TestLoadBudgetOfReports(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	const holders, waiters, every = 2, 8, 200 * time.Millisecond
	opts := &concurrency.SessionOptions{TTL: 300 * time.Second, ReportEvery: every}
	reports := make(chan observe.Waiting, 10000)
	opts.Hooks = testkit.Trace{Waiting: func(i observe.Waiting) { reports <- i }}.Hooks()
	s, c := f.Session(opts)
	for range holders {
		holder, _ := f.Session(nil)
		acquire(t, ctx, sem(t, holder, "x", holders))
	}
	sm := sem(t, s, "x", holders)
	_, err := sm.Status(ctx)
	require.NoError(t, err)
	index := f.RaftIndex()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var asks []<-chan answer
	for range waiters {
		asks = append(asks, ask2(waiting, sm))
	}
	times := map[int64]int{} // by token
	for range 5 * waiters {
		i := got(t, reports, "a report")
		require.Len(t, i.Blocking, holders)
		for _, b := range i.Blocking {
			require.Equal(t, times[i.Token] == 0, b.ExpiresBy.IsZero())
		}
		times[i.Token]++
	}
	require.EqualValues(t, waiters, f.RaftIndex()-index, "the requests alone")
	cancel()
	for _, ask := range asks {
		require.ErrorIs(t, got(t, ask, "it gives up").err, context.Canceled)
	}
	asked := c.Requests()["LeaseTimeToLive"]
	require.NotZero(t, asked)
	// Each caller may have ended before a report for which it had asked; its first asked nothing.
	require.LessOrEqual(t, asked, holders*(5*waiters+len(reports)))
}

// A renewal is one message on the stream that is open anyway, every third of the
// TTL, and no Raft entry. What a session watches it lists anew once per TTL or so.
func TestLoadBudgetOfRenewals(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for four renewals and a list: 8 s")
	}
	t.Parallel()
	f := own(t, 1)
	_, c := f.Session(brisk())
	require.Eventually(t, func() bool { return c.Requests()["Range"] > 0 }, soon, 5*time.Millisecond)
	index, begun := f.RaftIndex(), time.Now()
	c.ResetRequests()
	require.Eventually(t, func() bool { return c.Requests()["LeaseKeepAlive.Send"] >= 4 }, soon, 5*time.Millisecond)
	// On a slow machine an answer may be late, and then a stream beside it has one as well.
	sent := c.Requests()
	require.LessOrEqual(t, sent["LeaseKeepAlive.Send"]-sent["LeaseKeepAlive"], 1+int(time.Since(begun)/(brisk().TTL/3)))
	require.Equal(t, index, f.RaftIndex())
	require.Eventually(t, func() bool { return c.Requests()["Range"] > 0 }, soon, 5*time.Millisecond)
	for _, method := range []string{"Range", "LeaseTimeToLive"} {
		require.Eventually(t, func() bool { return c.Requests()[method] > 0 }, soon, 5*time.Millisecond)
		require.LessOrEqual(t, c.Requests()[method], 1+int(time.Since(begun)/(brisk().TTL/2)), method)
	}
}

// F42: the load of waiting: one watch per process and name, for any number of waiters, and a
// release costs one Txn.
func TestLoadBudget(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // stores the limit
	// The limit was read twice, and the session lists its own range once.
	require.Eventually(t, func() bool { return c.Requests()["Range"] == 3 }, soon, 5*time.Millisecond)
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
		require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 65 && c.Requests()["Range"] > 0 }, soon, 5*time.Millisecond)
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
	f.streams(c)
}
