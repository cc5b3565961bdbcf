package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/cost"
)

func totaled(t testing.TB, s *concurrency.Session, name string, limit, total int) *concurrency.KeyedLimiter {
	t.Helper()
	l, err := concurrency.NewKeyedLimiter(s, name, limit, &concurrency.KeyedLimiterOptions{Total: total})
	require.NoError(t, err)
	return l
}

// A request holds when it is admitted at its key and in the total. The order is that of the keys
// first, and then that of the total.
func TestKeyedLimiterTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 2, 3), totaled(t, other, "llm", 2, 3)
	a1, a2 := acquire(t, ctx, here.Key("a")), acquire(t, ctx, there.Key("a"))
	a3 := ask(t, ctx, here.Key("a")) // waits at its key
	b1 := acquire(t, ctx, there.Key("b"))
	b2 := ask(t, ctx, here.Key("b")) // waits for the total
	require.Eventually(t, func() bool {
		st, err := here.Total().Status(ctx)
		return err == nil && len(st.Waiters) == 1
	}, soon, tick)
	st, err := here.Total().Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{3, 3, 3, 1}, []int{st.Limit, st.Used, len(st.Holders), len(st.Waiters)})
	require.Equal(t, []int64{a1.Token(), a2.Token(), b1.Token()}, []int64{st.Holders[0].Token, st.Holders[1].Token, st.Holders[2].Token})
	waiting(t, a3, "its key is full")
	st, err = there.Key("b").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 1, 1}, []int{st.Limit, st.Used, len(st.Holders), len(st.Waiters)}, "one of two that are admitted waits for the total")
	require.Equal(t, []any{b1.Token(), concurrency.LevelTotal}, []any{st.Holders[0].Token, st.Waiters[0].WaitsFor})
	st, err = there.Key("a").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{2, 1, concurrency.LevelKey}, []any{len(st.Holders), len(st.Waiters), st.Waiters[0].WaitsFor})
	require.NoError(t, a1.Release(ctx))
	b := granted(t, b2, "it waits for the total, and a3 only joins it now")
	waiting(t, a3, "the total is full")
	require.NoError(t, b1.Release(ctx))
	a := granted(t, a3, "one is free")
	for _, p := range []*concurrency.Permit{a, b, a2} {
		require.NoError(t, p.Err())
		resp, err := f.Client().Txn(ctx).If(p.Guard()).Then(clientv3.OpGet("x")).Commit()
		require.NoError(t, err)
		require.True(t, resp.Succeeded, "the guard is one compare, of the total's request")
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// Waiters of the total leave no ghost: neither key is left when a call gives up, is evicted, or its
// lease is lost.
func TestKeyedLimiterTotalLeavesNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 2, 1), totaled(t, other, "llm", 2, 1)
	p := acquire(t, ctx, there.Key("a"))
	waits := func(n int) {
		require.Eventually(t, func() bool {
			st, err := there.Total().Status(ctx)
			return err == nil && len(st.Waiters) == n
		}, soon, tick)
	}
	require.ErrorIs(t, refused(func() (*concurrency.Permit, error) {
		return here.Key("b").Acquire(ctx, concurrency.Wait(500*time.Millisecond))
	}), concurrency.ErrFull)
	waits(0)
	given, cancel := context.WithCancel(ctx)
	gone := ask2(given, here.Key("b"))
	waits(1)
	cancel()
	require.ErrorIs(t, got(t, gone, "it gave up").err, context.Canceled)
	waits(0)
	_, err := here.Key("b").TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	evicted := ask2(ctx, here.Key("b"), concurrency.ID("flow"))
	waits(1)
	require.NoError(t, there.Key("b").Evict(ctx, "flow", "stuck"))
	require.ErrorIs(t, got(t, evicted, "it was evicted").err, concurrency.ErrEvicted)
	waits(0)
	byToken := ask2(ctx, here.Key("b"))
	waits(1)
	st, err := there.Total().Status(ctx)
	require.NoError(t, err)
	require.NoError(t, there.Total().EvictToken(ctx, st.Waiters[0].Token, "by the token in the total"))
	require.ErrorIs(t, got(t, byToken, "it was evicted").err, concurrency.ErrEvicted)
	waits(0)
	require.NoError(t, there.Key("a").EvictToken(ctx, p.Token(), "by the permit's token"))
	got(t, p.Context().Done(), "the notice")
	lostBy(t, p, concurrency.ErrEvicted)
	f.NoKeys("/queue/")
	held := acquire(t, ctx, here.Key("c"))
	queued := ask2(ctx, here.Key("b"))
	waits(1)
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	got(t, held.Context().Done(), "its lease")
	q := granted(t, queued, "on the next lease")
	require.NoError(t, q.Release(ctx))
	f.NoKeys("/queue/")
}

// Programs with a total and programs without one do not share a limiter (N9).
func TestTrapN9Shape(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	require.NoError(t, acquire(t, ctx, totaled(t, s, "with", 2, 9).Key("a")).Release(ctx))
	require.NoError(t, acquire(t, ctx, keyed(t, s, "without", 2).Key("a")).Release(ctx))
	var mismatch *concurrency.LimitMismatchError
	for name, c := range map[string]struct {
		lim  *concurrency.KeyedLimiter
		want concurrency.LimitMismatchError
	}{
		"a total is missing here": {keyed(t, s, "with", 2), concurrency.LimitMismatchError{Name: "with", Level: concurrency.LevelTotal, Stored: 9}},
		"a total is new here":     {totaled(t, s, "without", 2, 5), concurrency.LimitMismatchError{Name: "without", Level: concurrency.LevelTotal, Wanted: 5}},
		"another total":           {totaled(t, s, "with", 2, 8), concurrency.LimitMismatchError{Name: "with", Level: concurrency.LevelTotal, Stored: 9, Wanted: 8}},
	} {
		_, err := c.lim.Key("a").Acquire(ctx)
		require.ErrorAs(t, err, &mismatch, name)
		require.Equal(t, c.want, *mismatch, name)
	}
	require.NoError(t, totaled(t, s, "with", 2, 9).Total().SetLimit(ctx, 8))
	require.NoError(t, acquire(t, ctx, totaled(t, s, "with", 2, 8).Key("a")).Release(ctx))
	_, err := totaled(t, s, "with", 2, 8).Total().Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	_, err = keyed(t, s, "without", 2).Total().Status(ctx)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	f.NoKeys("/queue/")
}

// Whatever the keys do, neither level is ever exceeded, measured outside etcd.
func TestKeyedLimiterCrowd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const limit, total, keys = 2, 3, 4
	var all gauge
	var each [keys]gauge
	var wg sync.WaitGroup
	for range 4 {
		s, _ := f.Session(idle())
		lim := totaled(t, s, "llm", limit, total)
		for i := range 8 {
			wg.Go(func() {
				for n := range 10 {
					k := (i + n) % keys
					var opts []concurrency.AcquireOption
					get := lim.Key(fmt.Sprint(k)).Acquire
					switch {
					case n%5 == 4:
						get = lim.Key(fmt.Sprint(k)).TryAcquire
					case n%7 == 6:
						opts = append(opts, concurrency.Weight(2))
					}
					p, err := get(ctx, opts...)
					if err != nil {
						if !assertNoError(t, ignore(err, concurrency.ErrFull)) {
							return
						}
						continue
					}
					w := int64(1)
					if len(opts) > 0 {
						w = 2
					}
					all.enter(w)
					each[k].enter(w)
					time.Sleep(time.Millisecond) // work, so that permits overlap
					each[k].leave(w)
					all.leave(w)
					assertNoError(t, p.Release(ctx))
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, all.peak.Load(), int64(total))
	for i := range each {
		require.LessOrEqual(t, each[i].peak.Load(), int64(limit))
	}
	f.NoKeys("/queue/")
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// An uncontended request with a total costs two Txns, one to take and one to give, also beside others
// of its key; a contended one at most four.
func TestKeyedLimiterTxns(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	cost.New(ctx, t, f.Cluster).Started(c)
	lim := totaled(t, s, "llm", 3, 4)
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx), "it compares the limits")
	txns := func(do func()) (int, int) {
		c.ResetRequests()
		do()
		return c.Requests()["Txn"], c.Requests()["Range"]
	}
	for range 3 {
		n, reads := txns(func() { require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx)) })
		require.Equal(t, []int{2, 0}, []int{n, reads}, "alone")
	}
	p := acquire(t, ctx, lim.Key("b"))
	for range 3 {
		n, reads := txns(func() { require.NoError(t, acquire(t, ctx, lim.Key("b")).Release(ctx)) })
		require.Equal(t, []int{2, 0}, []int{n, reads}, "beside another of its key")
	}
	held := []*concurrency.Permit{p, acquire(t, ctx, lim.Key("b")), acquire(t, ctx, lim.Key("b"))}
	w := ask2(ctx, lim.Key("b"))
	require.Eventually(t, func() bool {
		st, err := lim.Key("b").Status(ctx)
		return err == nil && len(st.Waiters) == 1
	}, soon, tick)
	f.seesKey(ctx, lim, "b")
	n, _ := txns(func() {
		require.NoError(t, held[0].Release(ctx))
		held[0] = granted(t, w, "one is free")
	})
	require.Equal(t, 2, n, "one to release, and one that joins the total")
	for _, p := range held {
		require.NoError(t, p.Release(ctx))
	}
	other, _ := f.Session(idle())
	there := totaled(t, other, "llm", 3, 4)
	acquire(t, ctx, there.Key("c"))
	q := acquire(t, ctx, lim.Key("c"))
	require.NoError(t, q.Err(), "what this process takes for empty is not: the request at the key is written alone")
	st, err := lim.Total().Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Used)
	require.NoError(t, q.Release(ctx))
}

// N5: the total is to blame for a refusal if a request that is admitted at the key waits for it;
// otherwise the key is.
func TestTrapN5Blame(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 2, 3)
	refusal := func(key string) concurrency.FullError {
		t.Helper()
		for _, get := range []func() (*concurrency.Permit, error){
			func() (*concurrency.Permit, error) { return lim.Key(key).TryAcquire(ctx) },
			func() (*concurrency.Permit, error) { return lim.Key(key).Acquire(ctx, concurrency.MaxWaiters(0)) },
			func() (*concurrency.Permit, error) {
				return lim.Key(key).Acquire(ctx, concurrency.Wait(500*time.Millisecond))
			},
		} {
			var full *concurrency.FullError
			require.ErrorAs(t, refused(get), &full)
			full.Waiting = 0
			defer func(first concurrency.FullError) { require.Equal(t, first, *full) }(*full)
		}
		_, err := lim.Key(key).TryAcquire(ctx)
		full, _ := errors.AsType[*concurrency.FullError](err)
		full.Waiting = 0 // those that have just given up, perhaps
		return *full
	}
	a1, a2 := acquire(t, ctx, lim.Key("a")), acquire(t, ctx, lim.Key("a"))
	require.Equal(t, concurrency.FullError{Name: "llm/a", Limit: 2, Used: 2, Level: concurrency.LevelKey}, refusal("a"))
	b1 := acquire(t, ctx, lim.Key("b"))
	require.Equal(t, concurrency.FullError{Name: "llm", Limit: 3, Used: 3, Level: concurrency.LevelTotal}, refusal("c"), "the total is full")
	b2 := ask2(ctx, lim.Key("b"))
	require.Eventually(t, func() bool {
		st, err := lim.Total().Status(ctx)
		return err == nil && len(st.Waiters) == 1
	}, soon, tick)
	full := refusal("b")
	require.Equal(t, concurrency.LevelTotal, full.Level, "the key is full, but one of its requests waits for the total: %+v", full)
	require.Equal(t, concurrency.LevelKey, refusal("a").Level, "both of this key hold")
	require.NoError(t, a1.Release(ctx))
	for _, p := range []*concurrency.Permit{a2, b1, granted(t, b2, "one is free")} {
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// An operator need not know whether a limiter has a total: one that adopts what is stored shows the holders
// and waiters of a key, and asks and ends the right ones, also if there is none.
func TestAdoptedTotalThatIsNone(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	admin, _ := f.Session(idle())
	plain, err := concurrency.NewKeyedLimiter(s, "api", 1, nil)
	require.NoError(t, err)
	adopting, err := concurrency.NewKeyedLimiter(admin, "api", 0, &concurrency.KeyedLimiterOptions{AdoptLimit: true, Total: 1})
	require.NoError(t, err)
	by := adopting.Key("a")
	p := acquire(t, ctx, plain.Key("a"))
	second := ask(t, ctx, plain.Key("a"))
	next, stop := iter.Pull2(by.Watch(ctx))
	defer stop()
	seen, err, _ := next()
	require.NoError(t, err)
	st, err := by.Status(ctx)
	require.NoError(t, err)
	for _, st := range []concurrency.Status{st, seen} {
		require.Len(t, st.Holders, 1)
		require.Equal(t, p.Token(), st.Holders[0].Token)
		require.Len(t, st.Waiters, 1)
		require.Empty(t, st.Waiters[0].WaitsFor)
	}
	require.NoError(t, by.RequestStop(ctx, p.Token(), "drain"))
	closed(t, p.StopRequested().Done(), "it is asked")
	require.NoError(t, p.Release(ctx))
	p = granted(t, second, "the next")
	for len(seen.Holders) != 1 || seen.Holders[0].Token != p.Token() {
		seen, err, _ = next()
		require.NoError(t, err)
	}
	require.NoError(t, by.EvictToken(ctx, p.Token(), ""))
	lostBy(t, p, concurrency.ErrEvicted)
}

// A258: a process without the total restores a default that was deleted by hand as it was stored: programs with the total
// are not refused.
func TestDeletedDefaultOfATotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	require.NoError(t, acquire(t, ctx, totaled(t, s, "llm", 2, 3).Key("a")).Release(ctx))
	other, _ := f.Session(idle())
	plain := keyed(t, other, "llm", 2)
	try := func() error {
		return refused(func() (*concurrency.Permit, error) { return plain.Key("a").TryAcquire(ctx) })
	}
	require.ErrorIs(t, try(), concurrency.ErrLimitMismatch)
	for _, key := range f.Keys("llm") {
		if strings.HasSuffix(key, "/default") {
			_, err := f.Client().Delete(ctx, key)
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, try(), concurrency.ErrLimitMismatch)
	third, _ := f.Session(idle())
	require.NoError(t, acquire(t, ctx, totaled(t, third, "llm", 2, 3).Key("a")).Release(ctx))
}
