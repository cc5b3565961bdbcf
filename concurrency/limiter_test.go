package concurrency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestLimit: a limited function runs under a permit of its argument's key, which it releases
// however it ends.
func TestLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	lim := keyed(t, s, "tenants", 1)
	failed := errors.New("failed")
	within := func(ctx context.Context, tenant string) (int, error) {
		held, ok := concurrency.FromContext(ctx)
		require.True(t, ok)
		require.NoError(t, held.Err())
		ctx = ctxT(t) // that of another call
		_, err := lim.Key(tenant).TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull, "the permit is held")
		p, err := lim.Key("other").TryAcquire(ctx)
		require.NoError(t, err)
		require.NoError(t, p.Release(ctx))
		return len(tenant), failed
	}
	limited := concurrency.Limit(lim, func(tenant string) string { return tenant }, within, concurrency.Wait(0))
	for range 2 {
		n, err := limited(ctxT(t), "acme")
		require.Equal(t, 4, n)
		require.Equal(t, failed, err)
	}

	p, err := lim.Key("acme").TryAcquire(ctxT(t))
	require.NoError(t, err)
	_, err = limited(ctxT(t), "acme")
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, p.Release(ctxT(t)))

	_, err = limited(ctxT(t), "")
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.Panics(t, func() {
		_, _ = concurrency.Limit(lim, func(string) string { return "acme" }, func(context.Context, string) (int, error) { panic("planned") })(ctxT(t), "")
	})
	p, err = lim.Key("acme").TryAcquire(ctxT(t))
	require.NoError(t, err, "it is released after a panic")
	require.NoError(t, p.Release(ctxT(t)))
}

// TestLimitLost: the context of a limited function ends with its permit, and its error says so.
func TestLimitLost(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "sem", 1)
	limited := concurrency.Limit(concurrency.Single(sm), func(int) string { return "any" }, func(ctx context.Context, n int) (int, error) {
		require.NoError(t, sm.Evict(ctxT(t), "flow", "test"))
		<-ctx.Done()
		return n + 1, context.Cause(ctx)
	}, concurrency.ID("flow"))
	n, err := limited(ctxT(t), 1)
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
}

// TestLimitOfNil: what is missing is reported at the call, a nil pointer too (A264 in internal/proof/tested-failures.md).
func TestLimitOfNil(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	lim, key, fn := keyed(t, s, "tenants", 1), func(string) string { return "k" }, func(context.Context, string) (int, error) { return 1, nil }
	for _, bad := range []func(context.Context, string) (int, error){
		concurrency.Limit(nil, key, fn), concurrency.Limit(concurrency.Single(nil), key, fn), concurrency.Limit((*concurrency.KeyedLimiter)(nil), key, fn),
		concurrency.Limit(lim, nil, fn), concurrency.Limit[string, int](lim, key, nil),
	} {
		_, err := bad(ctxT(t), "x")
		require.ErrorIs(t, err, concurrency.ErrInvalid)
	}
	require.Empty(t, f.Keys("tenants"))
}
