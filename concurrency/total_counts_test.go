package concurrency_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// firstRead matches Txns that only read, by what they read first.
func firstRead(like func(r *etcdserverpb.RangeRequest) bool) func(string, any) bool {
	return func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		if !ok || len(r.Compare) > 0 || len(r.Success) == 0 {
			return false
		}
		first := r.Success[0].GetRequestRange()
		return first != nil && strings.Contains(string(first.Key), "/total/queue/") && like(first)
	}
}

var (
	countsTotal  = firstRead(func(r *etcdserverpb.RangeRequest) bool { return r.CountOnly && r.Revision == 0 })
	looksForKeys = firstRead(func(r *etcdserverpb.RangeRequest) bool { return len(r.RangeEnd) == 0 && r.Revision > 0 })
)

// passes counts such calls.
func passes(c *embedtest.Client, match func(string, any) bool) *embedtest.Injection {
	return c.Inject(embedtest.Fault{Match: match, Times: -1, Do: embedtest.Pass})
}

func fullTotal(t *testing.T, err error) {
	t.Helper()
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.LevelTotal, full.Level)
}

// A685: a total whose queue is long is full, and this process is releasing a permit: no try lists the queue. It is refused
// at once if that permit was not in the queue any more when it was counted.
func TestTryAtAFullTotalListsNothing(t *testing.T) {
	t.Parallel()
	const total = 300
	for name, c := range map[string]struct {
		crowd int
		hold  embedtest.Action
		try   func(t *testing.T, f fixture, ctx context.Context, c *embedtest.Client, lim *concurrency.KeyedLimiter, removal *embedtest.Injection)
	}{
		"the release is under way": {total - 2, embedtest.HoldRequest, func(t *testing.T, _ fixture, ctx context.Context, _ *embedtest.Client, lim *concurrency.KeyedLimiter, _ *embedtest.Injection) {
			_, err := lim.Key("c").TryAcquire(ctx)
			fullTotal(t, err)
		}},
		"it arrives while the try waits": {total - 2, embedtest.HoldRequest, func(t *testing.T, _ fixture, ctx context.Context, c *embedtest.Client, lim *concurrency.KeyedLimiter, removal *embedtest.Injection) {
			c.Inject(embedtest.Fault{Match: looksForKeys, Do: embedtest.Pass, After: func() { _ = removal.Release() }})
			p, err := lim.Key("c").TryAcquire(ctx)
			require.NoError(t, err)
			require.NoError(t, p.Release(ctx))
		}},
		"it was applied, and the total is full again": {total - 1, embedtest.HoldResponse, func(t *testing.T, _ fixture, ctx context.Context, c *embedtest.Client, lim *concurrency.KeyedLimiter, _ *embedtest.Injection) {
			counts := passes(c, countsTotal)
			_, err := lim.Key("c").TryAcquire(ctx)
			fullTotal(t, err)
			require.Equal(t, 1, counts.Hits(), "it does not wait")
		}},
		"others take the last permit, and the try is written": {total - 3, embedtest.HoldResponse, func(t *testing.T, f fixture, ctx context.Context, c *embedtest.Client, lim *concurrency.KeyedLimiter, _ *embedtest.Injection) {
			c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, Before: func() {
				other, _ := f.Session(idle())
				for range 2 {
					acquire(t, ctx, totaled(t, other, "llm", 5, total).Key("d"))
				}
			}})
			_, err := lim.Key("c").TryAcquire(ctx)
			fullTotal(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, client := f.Session(idle())
			lim := totaled(t, s, "llm", 5, total)
			p := acquire(t, ctx, lim.Key("a"))
			acquire(t, ctx, lim.Key("b"))
			f.crowded(ctx, lim, c.crowd)
			removal := client.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: c.hold})
			released := make(chan error, 1)
			go func() { released <- p.Release(ctx) }()
			require.NoError(t, removal.WaitHit(ctx))
			if c.hold == embedtest.HoldResponse {
				require.Eventually(t, func() bool { return len(f.Keys("/total/queue/")) == c.crowd+1 }, soon, tick, "it is applied")
			}
			if c.crowd == total-1 {
				require.Len(t, f.Keys("/total/queue/"), total)
			}
			lists := passes(client, listsOf("/total/"))
			c.try(t, f, ctx, client, lim, removal)
			require.Zero(t, lists.Hits(), "counts decide")
			_ = removal.Release()
			require.NoError(t, got(t, released, "Release returns"))
		})
	}
}

// A685: a try waits once for what its process was releasing when it came, and not for each release that begins meanwhile.
func TestTryWaitsForRemovalsOnce(t *testing.T) {
	t.Parallel()
	const total = 300
	f, ctx := shared(t), ctxT(t)
	s, c := f.Session(idle())
	lim := totaled(t, s, "llm", 5, total)
	p, q := acquire(t, ctx, lim.Key("a")), acquire(t, ctx, lim.Key("b"))
	f.crowded(ctx, lim, total-2)
	holds := func(p *concurrency.Permit) (*embedtest.Injection, <-chan error) {
		removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
		released := make(chan error, 1)
		go func() { released <- p.Release(ctx) }()
		require.NoError(t, removal.WaitHit(ctx))
		return removal, released
	}
	first, released := holds(p)
	var second *embedtest.Injection
	looks := c.Inject(embedtest.Fault{Match: looksForKeys, Times: -1, Do: embedtest.Pass, After: func() {
		if second != nil {
			return
		}
		require.NoError(t, first.Release())
		require.NoError(t, <-released)
		other, _ := f.Session(idle())
		acquire(t, ctx, totaled(t, other, "llm", 5, total).Key("d"))
		second, released = holds(q)
	}})
	counts := passes(c, countsTotal)
	_, err := lim.Key("c").TryAcquire(ctx)
	fullTotal(t, err)
	require.Equal(t, [2]int{2, 1}, [2]int{counts.Hits(), looks.Hits()})
	require.NoError(t, second.Release())
	require.NoError(t, got(t, released, "Release returns"))
}

// A686: a refusal by MaxTotalWaiters lists no queue because of earlier refusals, or of a wait that was given up: those of
// them count that were there when the request was written.
func TestMaxTotalWaitersListsNothing(t *testing.T) {
	t.Parallel()
	limiter := func(t *testing.T, s *concurrency.Session, most int) *concurrency.KeyedLimiter {
		lim, err := concurrency.NewKeyedLimiter(s, "llm", 99, &concurrency.KeyedLimiterOptions{Total: 1, MaxTotalWaiters: most})
		require.NoError(t, err)
		return lim
	}
	begin := func(t *testing.T, waiters int) (fixture, context.Context, *embedtest.Client, *concurrency.Semaphore, *concurrency.KeyedLimiter) {
		f, ctx := shared(t), ctxT(t)
		s, c := f.Session(idle())
		a := limiter(t, s, 2).Key("a")
		require.NoError(t, acquire(t, ctx, a).Release(ctx), "it knows the limits")
		other, _ := f.Session(idle())
		lim := limiter(t, other, 0)
		acquire(t, ctx, lim.Key("b"))
		for range waiters {
			ask(t, ctx, lim.Key("b"))
		}
		waitsInTotal(t, ctx, lim, waiters)
		return f, ctx, c, a, lim
	}
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		_, ctx, c, a, _ := begin(t, 2)
		removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Times: -1, Do: embedtest.HoldRequest})
		lists := passes(c, listsOf("/total/"))
		for range 40 {
			_, err := a.Acquire(ctx)
			fullTotal(t, err)
		}
		require.Zero(t, lists.Hits())
		require.NoError(t, removal.Release())
	})
	t.Run("a wait that was given up", func(t *testing.T) {
		t.Parallel()
		f, ctx, c, a, other := begin(t, 1)
		waits, giveUp := context.WithCancel(ctx)
		call := ask(t, waits, a)
		waitsInTotal(t, ctx, other, 2)
		removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Times: -1, Do: embedtest.HoldResponse})
		giveUp()
		require.ErrorIs(t, got(t, call, "it has ended").err, context.Canceled)
		require.NoError(t, removal.WaitHit(ctx))
		require.Eventually(t, func() bool { return len(f.Keys("/total/queue/")) == 2 }, soon, tick, "it is applied")
		ask(t, ctx, other.Key("b"))
		waitsInTotal(t, ctx, other, 2)
		lists, looks := passes(c, listsOf("/total/")), passes(c, looksForKeys)
		_, err := a.Acquire(ctx)
		fullTotal(t, err)
		require.Equal(t, 1, looks.Hits())
		require.Zero(t, lists.Hits())
	})
}

// A687: a short queue is full, and this process is releasing a permit: a try does not list the queue a second time because of that.
func TestTryBesideAReleaseListsOnce(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, c := f.Session(idle())
	jobs := sem(t, s, "jobs", 2)
	p := acquire(t, ctx, jobs)
	acquire(t, ctx, jobs)
	removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
	released := make(chan error, 1)
	go func() { released <- p.Release(ctx) }()
	require.NoError(t, removal.WaitHit(ctx))
	whole := passes(c, func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.RangeRequest)
		return ok && len(r.RangeEnd) > 0 && !r.CountOnly && r.Limit == 0 && strings.Contains(string(r.Key), "/jobs/")
	})
	names := c.Inject(embedtest.Fault{Method: "Range", Match: listsOf("/jobs/"), Skip: 1, Do: embedtest.Pass, Before: func() { _ = removal.Release() }})
	again, err := jobs.TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, names.Hits())
	require.Zero(t, whole.Hits())
	require.NoError(t, got(t, released, "Release returns"))
	require.NoError(t, again.Release(ctx))
}
