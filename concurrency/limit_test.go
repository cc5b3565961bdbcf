package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// T2: raising the limit wakes all who fit now.
func TestRaisedLimitWakesWaiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	admin, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	first := acquire(t, ctx, sm)
	b, c, d := ask(t, ctx, sm), ask(t, ctx, sm), ask(t, ctx, sm)
	require.NoError(t, sem(t, admin, "x", 1).SetLimit(ctx, 3))
	pb, pc := granted(t, b, "second"), granted(t, c, "third")
	waiting(t, d, "three are held")
	for _, p := range []*concurrency.Permit{first, pb, pc} {
		require.NoError(t, p.Release(ctx))
	}
	require.NoError(t, granted(t, d, "fourth").Release(ctx))
}

// The steps of docs/operations.md for programs without AdoptLimit: SetLimit disturbs none that
// has called once, whether the limit rises or falls; a restart of the old version fails until
// the new version is deployed, unless the old one adopts the limit.
func TestLimitChangedInARollingDeploy(t *testing.T) {
	t.Parallel()
	const old = 3
	for _, changed := range []int{5, 2} {
		f := shared(t)
		ctx := ctxT(t)
		s, _ := f.Session(nil)
		running := sem(t, s, "x", old)
		require.NoError(t, acquire(t, ctx, running).Release(ctx))
		idle := sem(t, s, "x", old) // has not called yet

		require.NoError(t, sem(t, s, "x", changed).SetLimit(ctx, changed))
		require.NoError(t, acquire(t, ctx, running).Release(ctx))
		_, err := idle.Acquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrLimitMismatch)
		restarted, _ := f.Session(nil)
		_, err = sem(t, restarted, "x", old).Acquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrLimitMismatch)
		adopts, err := concurrency.NewSemaphore(restarted, "x", old, &concurrency.SemaphoreOptions{AdoptLimit: true})
		require.NoError(t, err)
		require.NoError(t, acquire(t, ctx, adopts).Release(ctx))

		require.NoError(t, acquire(t, ctx, sem(t, restarted, "x", changed)).Release(ctx), "the new version")
		require.NoError(t, acquire(t, ctx, running).Release(ctx), "the old one, beside it")
	}
}

// T17, T18: setting the limit refills nothing, and lowering it below the present
// use admits no request until enough is released. Status distinguishes holders from waiters
// all the while.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	admin, _ := f.Session(nil)
	sm, control := sem(t, s, "x", 4), sem(t, admin, "x", 4)
	var held []*concurrency.Permit
	for range 4 {
		held = append(held, acquire(t, ctx, sm))
	}
	require.NoError(t, control.SetLimit(ctx, 4))
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "setting the same limit refills nothing")

	w1, w2 := ask(t, ctx, sm), ask(t, ctx, sm)
	for _, n := range []int{4, 1, 3, 2} { // again, down and up: they stay holders
		require.Len(t, f.sees(ctx, sm).Waiters, 2)
		require.NoError(t, control.SetLimit(ctx, n))
		st, err := control.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, []int{n, 4, 2}, []int{st.Limit, st.Used, len(st.Waiters)})
		st = f.sees(ctx, sm)
		require.Equal(t, []int{n, 4, 2}, []int{st.Limit, st.Used, len(st.Waiters)}, "and so the waiters see it")
	}
	for i := range 3 {
		st, err := control.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 4-i, st.Used, "after %d releases", i)
		require.Len(t, st.Waiters, 2)
		_, err = control.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
		if i < 2 {
			require.Len(t, f.sees(ctx, sm).Waiters, 2)
			waiting(t, w1, "more than the limit are held")
			require.NoError(t, held[i].Release(ctx))
		}
	}
	require.Len(t, f.sees(ctx, sm).Waiters, 2)
	waiting(t, w1, "two of two are held")
	require.NoError(t, held[2].Release(ctx))
	p := granted(t, w1, "one of two is held")
	require.NoError(t, held[3].Release(ctx))
	require.NoError(t, p.Release(ctx))
	granted(t, w2, "the last")
}

// A change of the limit that arrives late does not undo a newer one, and
// SetLimit(0) followed by "no permit was held" is a barrier, even for a waiter that was
// admitted just before and learns of it late.
func TestTrapS6Limit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	admin, ac := f.Session(nil)
	sm, control := sem(t, s, "x", 1), sem(t, admin, "x", 1)
	p := acquire(t, ctx, sm)

	late := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	given, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- control.SetLimit(given, 50) }()
	require.NoError(t, late.WaitHit(ctx))
	cancel()
	require.ErrorIs(t, got(t, done, "giving up"), context.Canceled)
	require.NoError(t, sm.SetLimit(ctx, 2))
	require.NoError(t, late.Release())
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Limit, "the late change is void")

	// The waiter's mirror gets no events from here on.
	second := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldResponse})
	require.NoError(t, p.Release(ctx))
	require.NoError(t, mute.WaitHit(ctx))
	require.NoError(t, control.SetLimit(ctx, 0))
	st, err = control.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Used, "the waiter was admitted before the pause")
	require.Empty(t, st.Waiters)
	mute.Remove()
	require.NoError(t, mute.Release())
	q := granted(t, w, "it holds as of before the pause")
	require.NoError(t, q.Release(ctx))
	require.NoError(t, second.Release(ctx))
	st, err = control.Status(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Used)

	// The same where the watch is lost and only a list shows both.
	require.NoError(t, control.SetLimit(ctx, 1))
	p = acquire(t, ctx, sm)
	w = ask(t, ctx, sm)
	broken := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldResponse})
	require.NoError(t, p.Release(ctx))
	require.NoError(t, broken.WaitHit(ctx))
	require.NoError(t, control.SetLimit(ctx, 0))
	broken.Remove()
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith})
	require.NoError(t, broken.Release())
	require.NoError(t, granted(t, w, "by the list").Release(ctx))
}

// A setter that dies between changing the limit and recording exactly which had been
// admitted leaves a record that shows too many as holders, never too few.
func TestTrapS6UnsettledLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	admin, ac := f.Session(nil)
	sm, control := sem(t, s, "x", 3), sem(t, admin, "x", 3)
	var ps []*concurrency.Permit
	for range 3 {
		ps = append(ps, acquire(t, ctx, sm))
	}
	w := ask(t, ctx, sm)
	ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Skip: 1, Err: rpctypes.ErrGRPCPermissionDenied})
	require.NoError(t, control.SetLimit(ctx, 1))
	require.NoError(t, ps[0].Release(ctx))
	st, err := control.Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Holders, 3, "the waiter fits the former limit now, so it may have held")
	waiting(t, w, "but it does not")
	require.NoError(t, control.SetLimit(ctx, 1))
	for _, p := range ps[1:] {
		require.NoError(t, p.Release(ctx))
	}
	require.NoError(t, granted(t, w, "it fits").Release(ctx))
}

// S6: the limit that counts is the one in force at a request's own revision, not
// what this process has seen of it before: where it was lowered meanwhile a request
// waits, where it was raised it does not.
func TestTrapS6LimitOfTheRequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	waits := make(chan int64, 1)
	opts := idle()
	opts.Hooks = testkit.Trace{Waiting: func(i observe.Waiting) { waits <- i.Token }}.Hooks()
	s, c := f.Session(opts)
	admin, _ := f.Session(nil)
	sm, control := sem(t, s, "x", 2), sem(t, admin, "x", 2)
	p := acquire(t, ctx, sm)
	require.NoError(t, control.SetLimit(ctx, 1))
	w := ask2(ctx, sm)
	select {
	case <-waits:
	case a := <-w:
		require.FailNow(t, "it did not wait", "the limit is 1 now (%v)", a.err)
	}
	require.NoError(t, control.SetLimit(ctx, 2))
	q := granted(t, w, "it fits")
	require.NoError(t, control.SetLimit(ctx, 3))
	c.ResetRequests()
	r := acquire(t, ctx, sm)
	require.Equal(t, 1, c.Requests()["Txn"])
	require.Zero(t, c.Requests()["Range"], "its own Txn showed that it fits")
	require.Empty(t, waits)
	for _, p := range []*concurrency.Permit{p, q, r} {
		require.NoError(t, p.Release(ctx))
	}
}

// A waiter that became heavier than the limit returns an error instead of blocking
// the queue; a pause is no such case.
func TestTrapL5TooHeavyWaiter(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 3)
	p := acquire(t, ctx, sm)
	heavy := ask(t, ctx, sm, concurrency.Weight(3))
	light := ask(t, ctx, sm)
	require.NoError(t, sm.SetLimit(ctx, 0))
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Waiters, 2)
	waiting(t, heavy, "paused")
	require.NoError(t, sm.SetLimit(ctx, 2))
	require.ErrorIs(t, got(t, heavy, "it can never fit").err, concurrency.ErrInvalid)
	q := granted(t, light, "it is not behind the heavy one any more")
	require.NoError(t, p.Release(ctx))
	require.NoError(t, q.Release(ctx))
	f.NoKeys("queue/")
}

// T12: the limit is not looked at when a permit is released; a limit that was
// deleted, or that cannot be read, frees and costs nothing.
func TestDamagedLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 2)
	p, q := acquire(t, ctx, sm), acquire(t, ctx, sm)
	key := f.Keys("/limit")[0]
	_, err := f.Client().Delete(ctx, key)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
	p = acquire(t, ctx, sm) // stores the limit again, as this process knows it
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)

	_, err = f.Client().Put(ctx, key, `{"v":2,"limit":{"of":"a later release"}}`)
	require.NoError(t, err)
	require.NoError(t, q.Release(ctx))
	_, err = sm.Acquire(ctx)
	require.ErrorContains(t, err, "later release")
	_, err = sm.TryAcquire(ctx)
	require.Error(t, err)
	require.Error(t, sm.SetLimit(ctx, 3), "an unreadable record is not overwritten by chance")
	require.NoError(t, p.Release(ctx))
	f.NoKeys("queue/")
}
