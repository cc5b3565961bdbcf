package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// F01, T26: a holder that cannot reach etcd any more knows that its permit has
// ended before the next one gets it, and what it still sends does not take
// effect.
func TestHolderWithoutEtcdStopsFirst(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(&concurrency.SessionOptions{TTL: 2 * time.Second, Margin: 500 * time.Millisecond})
	other, _ := f.session(nil)
	p := acquire(t, ctx, sem(t, s, "x", 1))
	w := ask(t, ctx, sem(t, other, "x", 1))
	c.Cut()
	ended := make(chan time.Time, 1)
	go func() { <-p.Context().Done(); ended <- time.Now() }()
	next := granted(t, w, "the permit frees by itself")
	at := time.Now()
	require.True(t, got(t, ended, "the holder is told").Before(at))
	require.ErrorIs(t, p.Err(), concurrency.ErrLost)
	require.ErrorIs(t, context.Cause(p.Context()), concurrency.ErrLost)
	c.Heal()
	resp, err := c.Txn(ctx).If(p.Guard()).Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded)
	require.Greater(t, next.Token(), p.Token())
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost, "a release says that it was too late")
	require.NoError(t, next.Release(ctx))
	require.NoError(t, acquire(t, ctx, sem(t, s, "x", 1)).Release(ctx), "the session has a new lease")
}

// F48: when the client is closed under a session, permits, waiters and new calls
// end at once with ErrClosed, and nothing stays in etcd for longer than a TTL.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(quick())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	require.NoError(t, c.Close())
	closed(t, p.Lost(), "the permit ends")
	require.ErrorIs(t, p.Err(), concurrency.ErrClosed)
	require.ErrorIs(t, got(t, w, "the waiter ends").err, concurrency.ErrClosed)
	_, err := sm.Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.Error(t, s.Close(ctx), "the lease is left to expire")
	f.noKeys("queue/")
	f.noKeys("session/")
}

// A session's keys may stand under a prefix that the client adds by etcd's
// namespace package, and the connection may be TLS.
func TestClientUnderANamespaceAndTLS(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{TLS: true})
	f := fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
	ctx := ctxT(t)
	cl := c.NewClient(t).Client
	cl.KV = namespace.NewKV(cl.KV, "tenant/")
	cl.Watcher = namespace.NewWatcher(cl.Watcher, "tenant/")
	cl.Lease = namespace.NewLease(cl.Lease, "tenant/")
	s := f.sessionOn(cl, nil)
	sm := sem(t, s, "x", 1)
	p, err := sm.TryAcquire(ctx, concurrency.ID("i"))
	require.NoError(t, err)
	require.Empty(t, f.keys(""))
	w := ask(t, ctx, sm)
	require.ErrorIs(t, func() error { _, err := sm.TryAcquire(ctx); return err }(), concurrency.ErrFull)
	resp, err := cl.Txn(ctx).If(p.Guard()).Commit()
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	require.NoError(t, sm.Evict(ctx, "i", ""))
	closed(t, p.Lost(), "the word comes")
	require.NoError(t, granted(t, w, "the next").Release(ctx))
}
