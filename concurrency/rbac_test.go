package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// payments is what the README and docs/operations.md show an operator to
// grant to an application in the namespace "payments", under the default prefix.
const payments = "/etcdkit/v1/payments/"

// An application needs read and write below its session's Prefix and nothing
// else, for everything that this package does.
func TestApplicationRole(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	ctx := ctxT(t)
	require.NoError(t, c.AddUser(ctx, "app", "secret", payments))
	require.NoError(t, c.EnableAuth(ctx, "admin", "secret"))
	client := func() *clientv3.Client {
		return c.NewClient(t, &embedtest.ClientOptions{Username: "app", Password: "secret"}).Client
	}
	mine := client()
	require.NoError(t, run(ctx, client()), "the program of the README")

	s, err := concurrency.NewSession(ctx, mine, "payments", nil)
	require.NoError(t, err)
	require.Equal(t, payments, s.NamespacePrefix())
	other, err := concurrency.NewSession(ctx, client(), "payments", nil)
	require.NoError(t, err)
	sm, there := sem(t, s, "x", 2), sem(t, other, "x", 2)

	p, err := sm.TryAcquire(ctx, concurrency.ID("i"), concurrency.Weight(2))
	require.NoError(t, err)
	resp, err := mine.Txn(ctx).If(p.Guard()).Then(clientv3.OpPut(payments+"mine", "1")).Commit()
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	w := ask(t, ctx, there)
	require.NoError(t, sm.SetLimit(ctx, 3))
	q := granted(t, w, "there is room")
	require.NoError(t, there.Evict(ctx, "i", "why"))
	closed(t, p.Context().Done(), "the permit ends")
	p = acquire(t, ctx, sm, concurrency.ID("i"))
	r := acquire(t, ctx, there, concurrency.ID("i"), concurrency.TakeOver())
	closed(t, p.Context().Done(), "it was taken over")
	require.NoError(t, sm.ReleaseID(ctx, "i"))
	closed(t, r.Context().Done(), "it was released from elsewhere")
	require.NoError(t, q.Release(ctx))
	for st, err := range sm.Watch(ctx) {
		require.NoError(t, err)
		require.Zero(t, st.Used)
		break
	}
	require.NoError(t, mutex(t, s, "x").Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
	terms, result := lead(t, ctx, election(t, s, "x"))
	now := got(t, terms, "it leads")
	_, err = election(t, other, "x").StepDown(ctx, "why")
	require.NoError(t, err)
	closed(t, now.ctx.Done(), "it is asked")
	now.end <- nil
	now = got(t, terms, "it leads again")
	now.end <- nil
	require.NoError(t, got(t, result, "Lead returns"))
	require.NoError(t, other.Close(ctx))
	require.NoError(t, s.Close(ctx))

	_, err = concurrency.NewSession(ctx, client(), "payments2", nil)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "another namespace is none of its business")
}

// Who may read the namespace can look with etcdctl. Who may also write below
// session/ can use Status and Watch, but gets no permit.
func TestObserverRole(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	ctx := ctxT(t)
	require.NoError(t, c.AddUser(ctx, "app", "secret", payments))
	require.NoError(t, c.AddUser(ctx, "dashboard", "secret", payments+"session/"))
	require.NoError(t, c.AddUser(ctx, "reader", "secret"))
	for _, role := range []string{"dashboard", "reader"} {
		_, err := c.Client().RoleGrantPermission(ctx, role, payments, clientv3.GetPrefixRangeEnd(payments), clientv3.PermissionType(clientv3.PermRead))
		require.NoError(t, err)
	}
	require.NoError(t, c.EnableAuth(ctx, "admin", "secret"))
	as := func(user string) *clientv3.Client {
		return c.NewClient(t, &embedtest.ClientOptions{Username: user, Password: "secret"}).Client
	}
	app, err := concurrency.NewSession(ctx, as("app"), "payments", nil)
	require.NoError(t, err)
	defer app.Close(ctx)
	p := acquire(t, ctx, sem(t, app, "x", 2))
	defer func() { require.NoError(t, p.Release(ctx)) }()
	term, err := election(t, app, "x").Campaign(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, term.Release(ctx)) }()

	reader := as("reader")
	resp, err := reader.Get(ctx, payments+"semaphore/x/queue/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	_, err = reader.Delete(ctx, string(resp.Kvs[0].Key))
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = concurrency.NewSession(ctx, reader, "payments", nil)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	dashboard, err := concurrency.NewSession(ctx, as("dashboard"), "payments", nil)
	require.NoError(t, err)
	defer dashboard.Close(ctx)
	el := election(t, dashboard, "x")
	require.Equal(t, term.Token(), leader(t, el).Token)
	_, err = el.StepDown(ctx, "")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	sm := sem(t, dashboard, "x", 2)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, st.Used)
	for st, err := range sm.Watch(ctx) {
		require.NoError(t, err)
		require.Equal(t, 1, st.Used)
		break
	}
	_, err = sm.Acquire(ctx)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.ErrorIs(t, sm.SetLimit(ctx, 3), rpctypes.ErrPermissionDenied)
	require.ErrorIs(t, sm.EvictToken(ctx, p.Token(), ""), rpctypes.ErrPermissionDenied)
	require.NoError(t, p.Err())
}
