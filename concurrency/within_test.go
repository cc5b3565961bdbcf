package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestTrapN10Nested: a context that has a permit of a limiter gets no second one of it, whatever the
// key, the value of the limiter or the call. Nothing is sent to etcd.
func TestTrapN10Nested(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	sm, other := sem(t, s, "slow", 5), keyed(t, s, "other", 5)
	same := func(in string) string { return in }
	for name, lim := range map[string]func() concurrency.Limiter{
		"without a total": func() concurrency.Limiter { return keyed(t, s, "tenants", 5) },
		"with a total":    func() concurrency.Limiter { return totaled(t, s, "llm", 5, 9) },
		"single":          func() concurrency.Limiter { return concurrency.Single(sm) },
	} {
		refused := func(in context.Context) {
			t.Helper()
			c.ResetRequests()
			lim := lim() // another value
			_, err := lim.Key("a").Acquire(in)
			require.ErrorIs(t, err, concurrency.ErrInvalid, name)
			require.ErrorContains(t, err, "the context has a permit of this limiter already", name)
			_, err = lim.Key("b").TryAcquire(in)
			require.ErrorIs(t, err, concurrency.ErrInvalid, name)
			require.ErrorIs(t, lim.Key("b").Do(in, func(context.Context, *concurrency.Permit) error { return nil }), concurrency.ErrInvalid, name)
			_, err = concurrency.Limit(lim, same, func(context.Context, string) (int, error) { return 0, nil })(in, "c")
			require.ErrorIs(t, err, concurrency.ErrInvalid, name)
			require.Empty(t, c.Requests(), name)
		}
		p := acquire(t, ctx, lim().Key("a"))
		refused(p.Context())
		refused(concurrency.NewContext(ctx, p))
		q := acquire(t, ctx, lim().Key("b")) // ctx has none
		require.NoError(t, q.Release(ctx))
		within := p.Context()
		require.NoError(t, p.Release(ctx))
		p = acquire(t, context.WithoutCancel(within), lim().Key("a"))
		require.NoError(t, p.Release(ctx), "the permit in the context has ended")

		_, err := concurrency.Limit(lim(), same, func(in context.Context, _ string) (int, error) {
			outer, ok := concurrency.FromContext(in)
			require.True(t, ok, name)
			refused(in)
			require.NoError(t, other.Key("a").Do(in, func(in context.Context, p *concurrency.Permit) error {
				refused(in)
				inner, ok := concurrency.FromContext(in)
				require.True(t, ok)
				require.Same(t, p, inner)
				require.NotSame(t, outer, inner)
				require.ErrorIs(t, other.Key("b").Do(in, nothing), concurrency.ErrInvalid, "this one as well")
				return nil
			}), "a permit of another limiter")
			return 0, nil
		})(ctx, "a")
		require.NoError(t, err, name)
	}
	f.NoKeys("/queue/")
}

func nothing(context.Context, *concurrency.Permit) error { return nil }

// TestNestedSemaphores: a context may have several permits of a semaphore, unless the call goes
// through Single; FromContext does not find them.
func TestNestedSemaphores(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "slow", 5)
	require.NoError(t, sm.Do(ctxT(t), func(ctx context.Context, _ *concurrency.Permit) error {
		_, ok := concurrency.FromContext(ctx)
		require.False(t, ok)
		require.NoError(t, concurrency.Single(sm).Key("").Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
			found, _ := concurrency.FromContext(ctx)
			require.Same(t, p, found)
			require.NoError(t, mutex(t, s, "slow").Do(ctx, nothing))
			return sm.Do(ctx, nothing)
		}))
		return sm.Do(ctx, nothing)
	}))
	f.NoKeys("/queue/")
}

// TestNestedSingleOfAKey: the semaphore of a limiter's key in Single is of that limiter.
func TestNestedSingleOfAKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 1, 1)
	single := concurrency.Single(lim.Key("a")).Key("")
	require.NoError(t, lim.Key("b").Do(ctxT(t), func(ctx context.Context, _ *concurrency.Permit) error {
		require.ErrorIs(t, single.Do(ctx, nothing, concurrency.Wait(0)), concurrency.ErrInvalid)
		return nil
	}))
	require.NoError(t, single.Do(ctxT(t), func(ctx context.Context, _ *concurrency.Permit) error {
		require.ErrorIs(t, lim.Key("b").Do(ctx, nothing, concurrency.Wait(0)), concurrency.ErrInvalid)
		return nil
	}))
}

// TestNewContextOfNil: what FromContext returns may be given to NewContext unseen.
func TestNewContextOfNil(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	p, ok := concurrency.FromContext(ctxT(t))
	require.False(t, ok)
	ctx := concurrency.NewContext(ctxT(t), p)
	_, ok = concurrency.FromContext(ctx)
	require.False(t, ok)
	require.NoError(t, keyed(t, s, "tenants", 1).Key("a").Do(ctx, nothing))
}
