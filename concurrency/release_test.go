package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A holder releases a permit that another process has just ended, before its watch has
// delivered the notice. Release reports it all the same: released on its behalf is no
// loss, and evicted is evicted.
func TestReleaseReadsItsNotice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	lost := make(chan *concurrency.LostError, 10)
	s, c := f.Session(&concurrency.SessionOptions{Hooks: testkit.Trace{Lost: func(e *concurrency.LostError) { lost <- e }}.Hooks()})
	o, _ := f.Session(nil)
	sm, other := sem(t, s, "x", 1), sem(t, o, "x", 1)
	require.Eventually(t, func() bool { return c.Requests()["Range"] > 0 }, soon, 5*time.Millisecond, "the session watches its range, and lists it")
	silent := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: func(_ string, msg any) bool {
		r, ok := msg.(*pb.WatchResponse)
		return ok && len(r.Events) > 0
	}})
	p := acquire(t, ctx, sm, concurrency.ID("flow"))
	require.NoError(t, other.ReleaseID(ctx, "flow"))
	require.NoError(t, p.Release(ctx))
	require.ErrorIs(t, got(t, lost, "the hook"), concurrency.ErrReleased)

	p = acquire(t, ctx, sm, concurrency.ID("flow"))
	require.NoError(t, other.Evict(ctx, "flow", "enough"))
	err := p.Release(ctx)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorContains(t, err, "enough")
	require.ErrorIs(t, got(t, lost, "the hook"), concurrency.ErrEvicted)

	p = acquire(t, ctx, sm)
	_, err = f.Client().Delete(ctx, f.Keys("queue/")[0])
	require.NoError(t, err)
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost)
	require.ErrorContains(t, got(t, lost, "the hook"), "gone before it was released")
	require.NoError(t, silent.WaitHit(ctx), "the watch")
}

// An answer to a release is lost, and then etcd refuses it for a moment. That the key
// is gone in the end is this release's doing.
func TestReleaseRemembersItsDoubt(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	p := acquire(t, ctx, sem(t, s, "x", 1))
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Match: deletes})
	inj := denied(c, 1)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, p.Release(ended), context.Canceled) // it continues in the background
	require.NoError(t, inj.WaitHit(ctx))
	require.Eventually(t, func() bool {
		err := p.Release(ctx)
		require.NotErrorIs(t, err, concurrency.ErrLost)
		return err == nil
	}, soon, 5*time.Millisecond)
}

// What Watch says of a limit that was deleted, or cannot be read, is what Status says.
func TestWatchAgreesWithStatus(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 7)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	step := 0
	for st, err := range sm.Watch(ctx) {
		require.NoError(t, err)
		switch {
		case step == 0:
			require.Equal(t, 7, st.Limit)
			_, err := f.Client().Put(ctx, f.Keys("/limit")[0], "bad")
			require.NoError(t, err)
		case step == 1:
			require.Zero(t, st.Limit)
			f.deleteLimit()
		default:
			require.Zero(t, st.Limit)
			return
		}
		step++
	}
}

// An ID whose record is of a later release, or damaged, is not given away.
func TestUnreadableID(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 5)
	p := acquire(t, ctx, sm, concurrency.ID("job"))
	key := f.Keys("/request-id/")[0]
	_, err := f.Client().Put(ctx, key, `{"v":2}`)
	require.NoError(t, err)
	_, err = sm.Acquire(ctx, concurrency.ID("job"))
	require.ErrorContains(t, err, "version 2")
	require.ErrorContains(t, sm.Evict(ctx, "job", ""), "version 2")
	require.Len(t, f.Keys("/request-id/"), 1)
	require.NoError(t, p.Release(ctx))
}

// A11: a release that waits for etcd's answer when its own program closes the session is
// not confirmed, and no loss. For Close nothing was held any more.
func TestReleaseWhileTheSessionCloses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	p := acquire(t, ctx, sem(t, s, "x", 1))
	held := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldResponse})
	released := make(chan error, 1)
	go func() { released <- p.Release(ctx) }()
	require.NoError(t, held.WaitHit(ctx))
	now, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, s.Close(now))
	err := got(t, released, "it returns")
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorIs(t, err, concurrency.ErrUnconfirmed)
	require.NotErrorIs(t, err, concurrency.ErrLost)
	held.Remove()
}
