package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A weight that can never be admitted is refused by an error that names the limit that is too low, and
// what changes it.
func TestWeightAboveTheTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	refused := func(lim *concurrency.KeyedLimiter, weight int, words string) {
		t.Helper()
		for _, acquire := range []func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error){lim.Key("a").TryAcquire, lim.Key("a").Acquire} {
			_, err := acquire(ctx, concurrency.Weight(weight))
			require.ErrorIs(t, err, concurrency.ErrInvalid)
			require.ErrorContains(t, err, `acquire "llm/a": `)
			require.ErrorContains(t, err, words)
		}
	}
	const aboveTotal = "Weight(4) is above the total of 3 of all keys (KeyedLimiterOptions.Total; if it is stored already, SetLimit of Total changes it)"
	const aboveKey = "Weight(4) is above the key's limit of 3 (SetLimit of the key, or SetDefault, changes it)"
	total, key := totaled(t, s, "llm", 5, 3), totaled(t, s, "llm", 5, 3)
	refused(total, 4, aboveTotal)
	require.NoError(t, acquire(t, ctx, total.Key("a")).Release(ctx))
	refused(total, 4, aboveTotal)
	require.NoError(t, key.Total().SetLimit(ctx, 9))
	require.NoError(t, acquire(t, ctx, total.Key("a"), concurrency.Weight(4)).Release(ctx))
	require.NoError(t, key.Total().SetLimit(ctx, 3))
	refused(total, 4, aboveTotal)
	require.NoError(t, key.Total().SetLimit(ctx, 9))
	require.NoError(t, key.SetDefault(ctx, 3))
	refused(total, 4, aboveKey)
	f.NoKeys("/queue/")
}

// The end of a permit, or of a request that waits for the total, is reported with the name of its key,
// as all else of it is. Status of the total shows the ID that its caller gave.
func TestRequestsInTheTotalAreNamed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	names := make(chan string, 2)
	opts := idle()
	opts.Hooks = testkit.Trace{Lost: func(e *concurrency.LostError) { names <- e.Name }}.Hooks()
	s, _ := f.Session(opts)
	lim := totaled(t, s, "llm", 2, 1)
	p := acquire(t, ctx, lim.Key("a"), concurrency.ID("flow"))
	w := ask2(ctx, lim.Key("b"), concurrency.ID("next"))
	var st concurrency.Status
	require.Eventually(t, func() bool {
		var err error
		st, err = lim.Total().Status(ctx)
		return err == nil && len(st.Waiters) == 1
	}, soon, tick)
	require.Equal(t, []string{"flow", "next"}, []string{st.Holders[0].ID, st.Waiters[0].ID})
	var lost *concurrency.LostError
	require.NoError(t, lim.Total().EvictToken(ctx, st.Waiters[0].Token, "why"))
	require.ErrorAs(t, got(t, w, "it was evicted").err, &lost)
	require.Equal(t, "llm/b", lost.Name)
	require.NoError(t, lim.Key("a").Evict(ctx, "flow", "why"))
	lostBy(t, p, concurrency.ErrEvicted)
	require.ErrorAs(t, p.Err(), &lost)
	require.Equal(t, "llm/a", lost.Name)
	require.Equal(t, "llm/a", got(t, names, "Trace.Lost"))
	require.NoError(t, acquire(t, ctx, lim.Key("a"), concurrency.ID("flow")).Release(ctx), "the IDs are free")
	require.NoError(t, acquire(t, ctx, lim.Key("b"), concurrency.ID("next")).Release(ctx))
	f.NoKeys("/queue/")
}
