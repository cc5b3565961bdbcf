package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// An application needs read and write below its session's Prefix and nothing else, for
// everything that this package does.
func TestApplicationRole(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	ctx := ctxT(t)
	require.NoError(t, c.AddUser(ctx, "app", "secret", "/etcdkit/v1/payments/"))
	require.NoError(t, c.EnableAuth(ctx, "admin", "secret"))
	store := func() *idempotency.Store {
		client := c.NewClientWith(t, &embedtest.ClientOptions{Username: "app", Password: "secret"})
		s, err := concurrency.NewSession(ctx, client.Client, "payments", nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		st, err := idempotency.NewStore(s, "store", nil)
		require.NoError(t, err)
		return st
	}
	a, b := store(), store()
	at, _, err := a.Begin(ctx, key("1"), nil)
	require.NoError(t, err)
	_, err = idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.NoError(t, at.Abandon(ctx))
	at, _, err = b.Begin(ctx, key("1"), nil)
	require.NoError(t, err)
	require.NoError(t, at.Commit(ctx, make([]byte, 2<<20)))
	_, rec, err := a.Begin(ctx, key("1"), nil)
	require.NoError(t, err)
	require.Len(t, rec.Value, 2<<20)
	at, _, err = a.Begin(ctx, key("2"), nil, idempotency.OnOrphan(idempotency.Refuse))
	require.NoError(t, err)
	require.NoError(t, at.Abandon(ctx))
	require.NoError(t, b.Resolve(ctx, b.Ref(key("2")), idempotency.WasDone(nil)))
	for r, err := range a.List(ctx, idempotency.Filter{}) {
		require.NoError(t, err)
		require.NoError(t, a.Delete(ctx, r.Ref))
	}
	n, err := a.Count(ctx, "", true)
	require.NoError(t, err)
	require.Zero(t, n)
}
