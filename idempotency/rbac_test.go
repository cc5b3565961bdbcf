package idempotency_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
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
		client := c.NewClient(t, &embedtest.ClientOptions{Username: "app", Password: "secret"})
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
	at, _, err = a.Begin(ctx, key("2"), nil, idempotency.OnLost(idempotency.Refuse))
	require.NoError(t, err)
	require.NoError(t, at.Abandon(ctx))
	require.NoError(t, b.Resolve(ctx, b.Ref(key("2")), idempotency.WasDone(nil)))
	for r, err := range a.List(ctx, idempotency.Filter{}) {
		require.NoError(t, err)
		require.NoError(t, a.Delete(ctx, r.Ref, idempotency.EvenIfAlive()))
	}
	n, err := a.Count(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
}

// Requests that the role does not cover are refused, and cost those that go together with
// them nothing; nor does Close wait for them.
func TestDeniedAmongOthers(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	if c.External() {
		t.Skip("it enables authentication after it has stored requests")
	}
	ctx := ctxT(t)
	const prefix = "/etcdkit/v1/payments/"
	store := func(client *embedtest.Client) (*concurrency.Session, *idempotency.Store) {
		s, err := concurrency.NewSession(ctx, client.Client, "payments", nil)
		require.NoError(t, err)
		st, err := idempotency.NewStore(s, "store", nil)
		require.NoError(t, err)
		return s, st
	}
	admin, first := store(c.NewClient(t, nil))
	at, _, err := first.Begin(ctx, key("first"), nil)
	require.NoError(t, err)
	require.NoError(t, at.Commit(ctx, nil))
	require.NoError(t, admin.Close(ctx))
	records := testkit.Keys(t, c, prefix, "/idempotency/store/record/")
	require.Len(t, records, 1)
	require.NoError(t, c.AddUser(ctx, "app", "secret", prefix+"session/", records[0][:strings.LastIndexByte(records[0], '/')+1]))
	require.NoError(t, c.EnableAuth(ctx, "admin", "secret"))

	client := c.NewClient(t, &embedtest.ClientOptions{Username: "app", Password: "secret"})
	s, st := store(client)
	together := client.Inject(embedtest.Fault{Method: "Txn", Match: isBatch, Times: -1})
	var wg sync.WaitGroup
	for n := range 64 {
		wg.Go(func() {
			k := key(fmt.Sprint(n))
			if n%16 == 0 {
				k.Scope = "another"
			}
			_, err := idempotency.Do(ctx, st, k, "payload", func(context.Context, *idempotency.Attempt) (int, error) { return n, nil }, idempotency.LikelyNew())
			if n%16 == 0 {
				assert.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
			} else {
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.NotZero(t, together.Hits())
	bounded, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	require.NoError(t, s.Close(bounded), "no call is left inside")
}
