package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Operators see the bound of each request, at both levels of a limiter, whether it holds or waits.
func TestStatusShowsMaxHold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm, concurrency.MaxHold(time.Hour+1500*time.Microsecond))
	w := ask(t, ctx, sm, concurrency.MaxHold(time.Minute))
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, time.Hour+time.Millisecond, st.Holders[0].MaxHold, "whole milliseconds")
	require.Equal(t, time.Minute, st.Waiters[0].MaxHold)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "the permit was released").Release(ctx))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))

	lim, err := concurrency.NewKeyedLimiter(s, "l", 1, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	p = acquire(t, ctx, lim.Key("k"), concurrency.MaxHold(time.Minute))
	st, err = lim.Key("k").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, time.Minute, st.Holders[0].MaxHold)
	for key, value := range f.Values("/queue/") {
		require.Contains(t, value, `"max_hold_ms":60000`, key)
	}
	require.NoError(t, p.Release(ctx))
}

// A request that serves several calls has no bound: each call has its own.
func TestKeptRequestsStoreNoMaxHold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	kept, err := concurrency.NewSemaphore(s, "x", 1, &concurrency.SemaphoreOptions{Keep: time.Minute})
	require.NoError(t, err)
	p := acquire(t, ctx, kept, concurrency.MaxHold(time.Minute))
	st, err := kept.Status(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Holders[0].MaxHold)
	require.NoError(t, p.Release(ctx))
}
