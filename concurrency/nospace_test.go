package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// While etcd is out of space, acquiring fails clearly, releasing works, and
// nothing is left.
func TestTrapL3NoSpace(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 2)
	p := acquire(t, ctx, sm, concurrency.ID("i"))
	require.NoError(t, f.SetNoSpace(ctx, true))
	_, err := sm.Acquire(ctx)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.ErrorIs(t, sm.SetLimit(ctx, 3), rpctypes.ErrNoSpace)
	require.ErrorIs(t, sm.Evict(ctx, "i", ""), rpctypes.ErrNoSpace)
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
	f.NoKeys("queue/")
	require.NoError(t, f.SetNoSpace(ctx, false))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	f.NoKeys("queue/")
}

// F45: "no space" can be the answer to a request that was applied.
func TestNoSpaceAfterApply(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	_, err := sm.Acquire(ctx)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	f.NoKeys("queue/")
	p := acquire(t, ctx, sm)
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	require.NoError(t, p.Release(ctx))
	f.NoKeys("queue/")
}

// A498: a request that waits at its key, below a total, needs a second key in etcd when its turn comes. Out of space it fails
// then, and leaves nothing. The permit before it is released.
func TestNoSpaceBelowATotal(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	lim, err := concurrency.NewKeyedLimiter(s, "x", 1, &concurrency.KeyedLimiterOptions{Total: 10})
	require.NoError(t, err)
	p := acquire(t, ctx, lim.Key("a"))
	next := ask(t, ctx, lim.Key("a"))
	require.NoError(t, f.SetNoSpace(ctx, true))
	require.NoError(t, p.Release(ctx))
	require.ErrorIs(t, got(t, next, "the request that waited").err, rpctypes.ErrNoSpace)
	f.NoKeys("queue/")
	require.NoError(t, f.SetNoSpace(ctx, false))
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
}
