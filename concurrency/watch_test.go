package concurrency_test

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A Watch on a view that lags behind shows no state from before the call: not the limit
// that the caller has replaced, nor an empty queue where a permit is held. No state is
// older than the one before, after a new list either.
func TestWatchIsNotOlderThanTheCall(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	sm, there := sem(t, s, "x", 3), sem(t, other, "x", 3)
	require.NoError(t, acquire(t, ctx, there).Release(ctx))
	f.sees(ctx, sm) // the view exists, and lingers
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/semaphore/")})
	p := acquire(t, ctx, there)
	require.NoError(t, mute.WaitHit(ctx))
	require.NoError(t, sm.SetLimit(ctx, 0))

	next, stop := iter.Pull2(sm.Watch(ctx))
	defer stop()
	st, err, _ := next()
	require.NoError(t, err)
	require.Zero(t, st.Limit, "it is what the caller has set")
	require.Equal(t, 1, st.Used, "the barrier: a permit is held")
	mute.Remove()
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith}) // so that it lists the queue
	require.NoError(t, p.Release(ctx))
	for seen := st.Revision; st.Used > 0; seen = st.Revision {
		st, err, _ = next()
		require.NoError(t, err)
		require.Greater(t, st.Revision, seen)
		require.Zero(t, st.Limit)
	}
	require.Greater(t, st.Revision, p.Token())
}

// Watch yields no state that differs from the last one in its revision only: not what the
// view shows first, nor what changes where the user does not see it, nor a new view.
func TestWatchShowsNoStateTwice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	sm := sem(t, s, "x", 3)
	p := acquire(t, ctx, sm)
	list := c.Inject(embedtest.Fault{Method: "Range", Match: lists, Skip: 1, Do: embedtest.HoldRequest}) // that of the view
	states, ended := make(chan concurrency.Status, 1000), make(chan struct{})
	watching, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		for st, err := range sm.Watch(watching) {
			if err == nil {
				states <- st
			}
		}
	}()
	shows := func(what string, held, foreign int) {
		t.Helper()
		st := got(t, states, what)
		require.Equal(t, []int{held, foreign}, []int{st.Used, st.Foreign}, what)
	}
	shows("the present state", 1, 0)
	slot, limit := f.Keys("queue/")[0], f.Keys("/limit")[0]
	require.NoError(t, list.WaitHit(ctx))
	_, err := f.Client().Put(ctx, f.Root+"elsewhere", "") // another revision
	require.NoError(t, err)
	require.NoError(t, list.Release())
	put := func(key, value string, lease int64) {
		t.Helper()
		resp, err := f.Client().Put(ctx, key, value, clientv3.WithLease(clientv3.LeaseID(lease)))
		require.NoError(t, err)
		require.NoError(t, concurrency.AwaitView(ctx, sm, resp.Header.Revision))
	}
	put(slot+"-stray", "", 0)
	shows("a foreign key is the first change", 1, 1)
	for _, key := range []string{slot, limit, slot + "-stray"} { // the same again
		resp, err := f.Client().Get(ctx, key)
		require.NoError(t, err)
		put(key, string(resp.Kvs[0].Value), resp.Kvs[0].Lease)
	}
	concurrency.ReplaceView(sm)
	require.NoError(t, p.Release(ctx))
	shows("the release is the next change", 0, 1)
	_, err = f.Client().Delete(ctx, slot+"-stray")
	require.NoError(t, err)
	shows("the end of the foreign key is the next", 0, 0)
	cancel()
	closed(t, ended, "the watch ends")
}

// A Watch of a mutex, too, shows what the caller knows by another call: that it is held.
func TestWatchOfAMutexIsNotOlderThanTheCall(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	mu := mutex(t, s, "x")
	var before *concurrency.Permit
	for st, err := range mu.Watch(ctx) { // so that there is a view, which lingers
		require.NoError(t, err)
		if before == nil {
			before = lock(t, other, "x")
		} else if st.Used == 1 {
			require.NoError(t, before.Release(ctx))
		} else {
			break
		}
	}
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/queue/")})
	p := lock(t, other, "x")
	require.NoError(t, mute.WaitHit(ctx))
	for st, err := range mu.Watch(ctx) {
		require.NoError(t, err)
		require.Equal(t, 1, st.Used)
		break
	}
	require.NoError(t, p.Release(ctx))
}

// Waiters, watchers and leaders continue when the view of the queue is replaced, though
// the session keeps its lease.
func TestReplacedView(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	f.sees(ctx, sm)
	states := make(chan concurrency.Status, 1000)
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for st, err := range sm.Watch(watching) {
			if err == nil {
				states <- st
			}
		}
	}()
	got(t, states, "the present state")
	concurrency.ReplaceView(sm)
	require.NoError(t, p.Release(ctx))
	p = granted(t, w, "the waiter")
	require.NoError(t, p.Release(ctx))
	for st := range states {
		if st.Used == 0 {
			break
		}
	}
	cancel()
	closed(t, ended, "the watch ends")
}
