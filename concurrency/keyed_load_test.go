package concurrency_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/cost"
)

// The costs of a limiter in docs/storage.md, row by row: two Raft entries for an uncontended request,
// with and without a total, and one more for a request with a total that waits at its key.
func TestLoadBudgetOfLimiters(t *testing.T) {
	t.Parallel()
	f, ctx := own(t, 1), ctxT(t)
	b := cost.New(ctx, t, f.Cluster)
	s, c := f.Session(idle())
	far, _ := f.Session(idle())
	b.Started(c)
	lim, there := totaled(t, s, "with", 1, 2), totaled(t, far, "with", 1, 2)
	plain, away := keyed(t, s, "without", 1), keyed(t, far, "without", 1)

	var p *concurrency.Permit
	release := func() {
		t.Helper()
		b.Count("`Release`", c, load{"Txn": 1}, 1, 1, func() { require.NoError(t, p.Release(ctx)) })
	}
	b.Count("the first `Acquire` of a new limiter", c, load{"Range": 4, "Txn": 2}, 2, 2, func() { p = acquire(t, ctx, plain.Key("a")) })
	release()
	b.Count("the first `Acquire` of a new limiter with a total", c, load{"Range": 6, "Txn": 3}, 3, 3, func() { p = acquire(t, ctx, lim.Key("a")) })
	release()
	require.NoError(t, acquire(t, ctx, there.Key("a")).Release(ctx), "the other process compares the limits, too")
	require.NoError(t, acquire(t, ctx, away.Key("a")).Release(ctx))

	const free = "`Acquire` that need not wait"
	for _, l := range []*concurrency.KeyedLimiter{plain, lim} {
		b.Count(free, c, load{"Txn": 1}, 1, 1, func() { p = acquire(t, ctx, l.Key("b"), concurrency.ID("i")) })
		release()
	}
	b.Count("`TryAcquire`", c, load{"Txn": 2}, 1, 1, func() { p = try(t, plain.Key("b")) })
	release()
	b.Count("`TryAcquire` with a total", c, load{"Range": 1, "Txn": 3}, 2, 2, func() { p = try(t, lim.Key("b")) })
	release()

	// Each of these waits for a holder in another process, which releases its permit.
	waits := func(what string, first, again load, entries int, at, held *concurrency.Semaphore) {
		t.Helper()
		wants := []load{first, again}
		for i, name := range []string{"the first `Acquire` of a session ", "`Acquire` "} {
			h := acquire(t, ctx, held)
			b.Count(name+what+", and the holder's `Release`", c, wants[i], entries, entries, func() {
				w := ask2(ctx, at)
				require.Eventually(t, func() bool { rev, err := f.Revision(ctx); return err == nil && rev > h.Token() }, soon, tick)
				require.NoError(t, h.Release(ctx))
				p = granted(t, w, "one is free")
			})
			release()
		}
	}
	watched := load{"Range": 2, "Txn": 2, "Watch.Send": 2} // the key and the default
	waits("that waits at its key", watched, load{"Txn": 2}, 2, plain.Key("c"), away.Key("c"))
	waits("that waits at its key, with a total", watched, load{"Txn": 2}, 3, lim.Key("c"), there.Key("c"))
	one, other := totaled(t, s, "one", 1, 1), totaled(t, far, "one", 1, 1)
	for _, l := range []*concurrency.KeyedLimiter{one, other} {
		require.NoError(t, acquire(t, ctx, l.Key("d")).Release(ctx), "it compares the limits")
	}
	waits("that waits for the total", load{"Range": 1, "Txn": 2, "Watch.Send": 1}, load{"Txn": 2}, 2, one.Key("d"), other.Key("e"))

	for _, r := range []struct {
		name string
		lim  *concurrency.KeyedLimiter
		txns int
	}{{"`TryAcquire` that its key refuses", plain, 1}, {"`TryAcquire` that its key refuses, with a total", lim, 2}} {
		p = acquire(t, ctx, r.lim.Key("f"))
		b.Count(r.name, c, load{"Txn": r.txns}, 0, 0, func() {
			_, err := r.lim.Key("f").TryAcquire(ctx)
			require.ErrorIs(t, err, concurrency.ErrFull)
		})
		release()
	}
	b.CheckDoc("../docs/storage.md", "### Limiters")
}

func try(t testing.TB, sm *concurrency.Semaphore) *concurrency.Permit {
	t.Helper()
	p, err := sm.TryAcquire(ctxT(t))
	require.NoError(t, err)
	return p
}

// Beside others, from several processes, a request with a total costs four Raft entries at most on
// average: it joins its key's queue and that of the total, and leaves both at once.
func TestKeyedLimiterRaftEntries(t *testing.T) {
	t.Parallel()
	f, ctx := own(t, 1), ctxT(t)
	const processes, callers, rounds, keys = 3, 6, 10, 2
	var wg sync.WaitGroup
	index := uint64(0)
	var lims []*concurrency.KeyedLimiter
	for range processes {
		s, _ := f.Session(idle())
		lim := totaled(t, s, "llm", 2, 3)
		require.NoError(t, acquire(t, ctx, lim.Key("0")).Release(ctx), "it compares the limits")
		lims = append(lims, lim)
	}
	index = f.RaftIndex()
	for i := range processes * callers {
		wg.Go(func() {
			sm := lims[i%processes].Key(string(rune('0' + i%keys)))
			for range rounds {
				p, err := sm.Acquire(ctx)
				if !assertNoError(t, err) {
					return
				}
				time.Sleep(time.Millisecond) // work, so that requests wait
				assertNoError(t, p.Release(ctx))
			}
		})
	}
	wg.Wait()
	each := float64(f.RaftIndex()-index) / (processes * callers * rounds)
	t.Logf("%.2f Raft entries per request", each)
	require.LessOrEqual(t, each, 4.0)
	require.GreaterOrEqual(t, each, 2.0)
}
