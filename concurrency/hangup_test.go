package concurrency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Callers give up while their requests are under way. That does not raise the session's
// fence, which would void the requests of all others; each call ends at once, and what
// it has sent is removed.
func TestHangUpsRaiseNoFence(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	const callers = 20
	sm := sem(t, s, "x", 2*callers)
	p := acquire(t, ctx, sm)
	held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldResponse, Times: callers})
	given, hangUp := context.WithCancel(ctx)
	var all []<-chan answer
	for range callers {
		all = append(all, ask2(given, sm, concurrency.ID(fmt.Sprint(len(all)))))
	}
	require.Eventually(t, func() bool { return held.Hits() == callers }, soon, tick)
	hangUp()
	for _, ch := range all { // none of them has its answer yet
		require.ErrorIs(t, got(t, ch, "the call ends").err, context.Canceled)
	}
	require.Len(t, f.Keys("queue/"), callers+1)
	require.NoError(t, held.Release())
	require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 1 }, soon, tick)
	f.NoKeys("/request-id/")
	presence, err := f.Client().Get(ctx, f.Keys("/alive")[0])
	require.NoError(t, err)
	require.EqualValues(t, 1, presence.Kvs[0].Version, "the fence was not raised")
	require.NoError(t, p.Release(ctx))
	p, err = sm.TryAcquire(ctx, concurrency.Weight(2*callers))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// A session closes while requests are under way whose callers have given up: it does not
// wait for their answers longer than for any.
func TestCloseAfterHangUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest})
	given, hangUp := context.WithCancel(ctx)
	ch := ask2(given, sm)
	require.NoError(t, held.WaitHit(ctx))
	hangUp()
	require.ErrorIs(t, got(t, ch, "the call ends").err, context.Canceled)
	require.NoError(t, s.Close(ctx))
	require.NoError(t, held.Release())
	require.Empty(t, f.Keys("queue/"), "the late copy finds no lease")
}
