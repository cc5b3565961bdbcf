package concurrency_test

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

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
	s, c := f.session(calm())
	other, _ := f.session(calm())
	sm, there := sem(t, s, "x", 3), sem(t, other, "x", 3)
	require.NoError(t, acquire(t, ctx, there).Release(ctx))
	f.sees(ctx, sm) // the view exists, and lingers
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropAnswer, Times: -1, Match: tells("/sem/")})
	p := acquire(t, ctx, there)
	require.NoError(t, mute.Wait(ctx))
	require.NoError(t, sm.SetLimit(ctx, 0))

	next, stop := iter.Pull2(sm.Watch(ctx))
	defer stop()
	st, err, _ := next()
	require.NoError(t, err)
	require.Zero(t, st.Limit, "it is what the caller has set")
	require.Equal(t, 1, st.Held, "the barrier: a permit is held")
	mute.Remove()
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith}) // so that it lists the queue
	require.NoError(t, p.Release(ctx))
	for seen := st.Revision; st.Held > 0; seen = st.Revision {
		st, err, _ = next()
		require.NoError(t, err)
		require.Greater(t, st.Revision, seen)
		require.Zero(t, st.Limit)
	}
	require.Greater(t, st.Revision, p.Token())
}

// What the view shows first, as of a later revision, is no change.
func TestWatchShowsNoStateTwice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(calm())
	sm := sem(t, s, "x", 3)
	p := acquire(t, ctx, sm)
	list := c.Inject(embedtest.Fault{Method: "Range", Match: lists, Skip: 1, Do: embedtest.HoldRequest}) // that of the view
	next, stop := iter.Pull2(sm.Watch(ctx))
	defer stop()
	st, err, _ := next()
	require.NoError(t, err)
	require.Equal(t, 1, st.Held)
	go func() {
		if assertNoError(t, list.Wait(ctx)) {
			_, err := f.Client().Put(ctx, "elsewhere", "") // another revision
			assertNoError(t, err)
			assertNoError(t, list.Release())
			assertNoError(t, p.Release(ctx))
		}
	}()
	st, err, _ = next()
	require.NoError(t, err)
	require.Zero(t, st.Held)
}

// A Watch of a mutex, too, shows what the caller knows by another call: that it is held.
func TestWatchOfAMutexIsNotOlderThanTheCall(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(calm())
	other, _ := f.session(calm())
	mu := mutex(t, s, "x")
	var before *concurrency.Permit
	for st, err := range mu.Watch(ctx) { // so that there is a view, which lingers
		require.NoError(t, err)
		if before == nil {
			before = lock(t, other, "x")
		} else if st.Held == 1 {
			require.NoError(t, before.Release(ctx))
		} else {
			break
		}
	}
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropAnswer, Times: -1, Match: tells("/queue/")})
	p := lock(t, other, "x")
	require.NoError(t, mute.Wait(ctx))
	for st, err := range mu.Watch(ctx) {
		require.NoError(t, err)
		require.Equal(t, 1, st.Held)
		break
	}
	require.NoError(t, p.Release(ctx))
}

// Whoever waits, watches or leads goes on when the view of the queue is replaced, though
// the session keeps its lease.
func TestReplacedView(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(calm())
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
	require.Len(t, got(t, states, "the state after it").Waiters, 1)
	require.NoError(t, p.Release(ctx))
	p = granted(t, w, "the waiter")
	require.NoError(t, p.Release(ctx))
	for st := range states {
		if st.Held == 0 {
			break
		}
	}
	cancel()
	closed(t, ended, "the watch ends")
}
