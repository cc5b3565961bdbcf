package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// I10: a second payload counts between two calls that both have one, in every state of the request; so
// it can be added while a fleet is running.
func TestAlsoCompare(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{CacheBytes: -1})
	shop := func(name string) idempotency.Option { return idempotency.AlsoCompare(name) }
	ask := func(in instance, k string, opts ...idempotency.Option) error {
		at, _, err := in.Begin(ctxT(t), key(k), "payload", append(opts, idempotency.Wait(0))...)
		require.Nil(t, at)
		return err
	}
	at := begin(t, a, key("1"), shop("a"))
	for _, in := range []instance{a, b} {
		require.ErrorIs(t, ask(in, "1", shop("b")), idempotency.ErrMismatch)
		require.ErrorIs(t, ask(in, "1", shop("a")), idempotency.ErrInProgress)
		require.ErrorIs(t, ask(in, "1"), idempotency.ErrInProgress)
	}
	require.NoError(t, at.Abandon(ctxT(t)))
	require.ErrorIs(t, ask(b, "1", shop("b")), idempotency.ErrMismatch)
	at = begin(t, b, key("1")) // a release without it takes over
	require.ErrorIs(t, ask(a, "1", shop("b")), idempotency.ErrMismatch)
	require.NoError(t, at.Commit(ctxT(t), nil))
	for range 2 { // read, and from the cache
		for _, in := range []instance{a, b} {
			require.ErrorIs(t, ask(in, "1", shop("b")), idempotency.ErrMismatch)
			require.NoError(t, ask(in, "1", shop("a")))
			require.NoError(t, ask(in, "1", idempotency.AlsoCompare(nil)))
		}
	}

	// What a release without it has recorded matches any.
	require.NoError(t, begin(t, b, key("2")).Commit(ctxT(t), nil))
	require.NoError(t, ask(a, "2", shop("a")))
	require.NoError(t, ask(a, "2", shop("b")))

	_, _, err := a.Begin(ctxT(t), key("3"), nil, idempotency.AlsoCompare(func() {}))
	require.ErrorIs(t, err, idempotency.ErrInvalid)
}
