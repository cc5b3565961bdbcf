package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// denied has etcd refuse so many deletions for want of a permission.
func denied(c *embedtest.Client, times int) *embedtest.Injection {
	return c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: times, Err: rpctypes.ErrGRPCPermissionDenied, Match: deletes})
}

// A role loses a permission and gets it again. A permit that was to be released in
// between does not stay taken: its holder gets the error, and the release continues.
func TestRefusedReleaseContinues(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	inj := denied(c, -1)
	err := p.Release(ctx)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.NotErrorIs(t, err, concurrency.ErrLost)
	require.ErrorIs(t, err, concurrency.ErrUnconfirmed)
	require.ErrorIs(t, p.Release(ctx), rpctypes.ErrPermissionDenied, "again")
	inj.Remove()
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	require.Eventually(t, func() bool { return p.Release(ctx) == nil }, soon, 5*time.Millisecond)

	denied(c, 2)
	err = sm.Do(ctx, func(_ context.Context, did *concurrency.Permit) error { p = did; return nil })
	require.NoError(t, err, "the work is done")
	require.Eventually(t, func() bool { return p.Release(ctx) == nil }, soon, 5*time.Millisecond)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))

	denied(c, 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx), "the second try is at once")
}

// The same with a request that was given up, and with a permit that was held too
// long.
func TestRefusedWithdrawalContinues(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	given, cancel := context.WithCancel(ctx)
	w := ask(t, given, sm)
	inj := denied(c, 2)
	cancel()
	require.ErrorIs(t, got(t, w, "gives up").err, context.Canceled)
	require.Eventually(t, func() bool { return inj.Hits() == 2 && len(f.Keys("queue/")) == 1 }, soon, 5*time.Millisecond)
	require.NoError(t, p.Release(ctx))

	inj = denied(c, 2)
	p = acquire(t, ctx, sm, concurrency.MaxHold(time.Millisecond))
	closed(t, p.Context().Done(), "held too long")
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	require.Equal(t, 2, inj.Hits())
}
