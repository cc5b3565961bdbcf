package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A key that is paused and has no holder stays without one until it is resumed: a request that was
// waiting for the total gets no permit there (A145).
func TestPausedKeyBesideAFullTotal(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(context.Context, *concurrency.KeyedLimiter, int) error{
		"the key's own limit": func(ctx context.Context, lim *concurrency.KeyedLimiter, n int) error {
			return lim.Key("a").SetLimit(ctx, n)
		},
		"the default": func(ctx context.Context, lim *concurrency.KeyedLimiter, n int) error { return lim.SetDefault(ctx, n) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, _ := f.Session(idle())
			lim := totaled(t, s, "llm", 5, 1)
			b := acquire(t, ctx, lim.Key("b"))
			a := ask(t, ctx, lim.Key("a"), concurrency.ID("a"))
			waitsInTotal(t, ctx, lim, 1)
			require.NoError(t, set(ctx, lim, 0))
			st, err := lim.Key("a").Status(ctx)
			require.NoError(t, err)
			require.Empty(t, st.Holders, "the barrier: an operator goes on")
			require.Len(t, st.Waiters, 1)
			require.Equal(t, concurrency.LevelTotal, st.Waiters[0].WaitsFor)

			require.NoError(t, b.Release(ctx))
			require.Eventually(t, func() bool {
				st, err := lim.Total().Status(ctx)
				return len(a) > 0 || err == nil && len(st.Holders)+len(st.Waiters) == 0
			}, soon, tick, "it leaves the total, and waits at its key")
			waiting(t, a, "its key is paused")
			require.Eventually(t, func() bool {
				st, err = lim.Key("a").Status(ctx)
				return err == nil && len(st.Holders) == 0 && len(st.Waiters) == 1 && st.Waiters[0].WaitsFor == concurrency.LevelKey
			}, soon, tick)
			require.NoError(t, set(ctx, lim, 5))
			require.NoError(t, granted(t, a, "it is resumed").Release(ctx))
			f.NoKeys("/queue/")
		})
	}
}

// The token of an ID's owner in an error is that of its permit, or of its request at the key while it
// waits, as Status shows it (A148).
func TestTokenOfAnOwner(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 1, 1)
	owner := func(key, id string) concurrency.Request {
		_, err := lim.Key(key).Acquire(ctx, concurrency.ID(id))
		var held *concurrency.HeldError
		require.ErrorAs(t, err, &held)
		return held.Request
	}
	first := acquire(t, ctx, lim.Key("a"))
	a := ask(t, ctx, lim.Key("a"), concurrency.ID("a"))
	require.Equal(t, concurrency.LevelKey, owner("a", "a").WaitsFor)
	b := ask(t, ctx, lim.Key("b"), concurrency.ID("b"))
	waitsInTotal(t, ctx, lim, 1)
	st, err := lim.Key("b").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, st.Waiters[0], owner("b", "b"))
	require.NoError(t, first.Release(ctx))
	waits := granted(t, b, "the total is free")
	require.NoError(t, waits.Release(ctx))
	p := granted(t, a, "it has waited at both levels")
	require.Equal(t, p.Token(), owner("a", "a").Token)
	require.Empty(t, owner("a", "a").WaitsFor)
	require.NoError(t, p.Release(ctx))
}
