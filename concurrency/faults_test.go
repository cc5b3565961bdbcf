package concurrency_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// T10, F23: a request whose answer was lost is found and used, not made twice, and
// a session goes on as if nothing had happened.
func TestAcquireFindsItsLostRequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // the limit is stored
	lost := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer})
	p := acquire(t, ctx, sm)
	require.Equal(t, 1, lost.Struck())
	require.Len(t, f.keys("queue/"), 1)
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))

	// The same for one that then has to wait.
	p = acquire(t, ctx, sm)
	lost = c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer})
	w := ask(t, ctx, sm)
	require.NoError(t, lost.Wait(ctx))
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "the waiter").Release(ctx))
	f.noKeys("queue/")
}

// T9, T27, F23: an acquire that was given up while its request was under way
// leaves nothing, even if the request arrives after all, and even if its name was
// used by others meanwhile.
func TestTrapL1LateAcquireLeavesNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))

	held := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	given, cancel := context.WithCancel(ctx)
	ch := ask2(given, sm)
	require.NoError(t, held.Wait(ctx))
	cancel()
	require.ErrorIs(t, got(t, ch, "giving up").err, context.Canceled)

	reused := acquire(t, ctx, sm) // the same slot, most likely, once it is settled
	require.NoError(t, held.Release())
	require.Len(t, f.keys("queue/"), 1, "the late copy did not apply")
	require.NoError(t, reused.Err())
	require.NoError(t, reused.Release(ctx))
	f.noKeys("queue/")
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
}

// A second copy of a request that arrives when its permit was released leaves
// nothing.
func TestTrapL1DoubledAcquire(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	double := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	p := acquire(t, ctx, sm)
	require.Equal(t, 1, double.Struck())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, double.Release())
	require.Empty(t, f.keys("queue/"))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
}

// F23: the request was applied, and its caller had given up before the answer
// came.
func TestGivenUpAcquireIsRemoved(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	held := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldAnswer})
	given, cancel := context.WithCancel(ctx)
	ch := ask2(given, sm, concurrency.ID("i"))
	require.NoError(t, held.Wait(ctx))
	require.Len(t, f.keys("queue/"), 1)
	cancel()
	require.ErrorIs(t, got(t, ch, "giving up").err, context.Canceled)
	f.noKeys("queue/")
	f.noKeys("/id/")
	p, err := sm.TryAcquire(ctx, concurrency.ID("i"))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// F25, T32: while etcd cannot be reached, Acquire and Release return when their
// ctx ends, and what they left is cleaned up when etcd is back.
func TestCallsHonourCtxWhenEtcdIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*embedtest.Client){
		"cut": (*embedtest.Client).Cut, "black hole": (*embedtest.Client).BlackHole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.session(nil)
			sm := sem(t, s, "x", 2)
			p := acquire(t, ctx, sm)
			away(c)
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := sm.Acquire(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = sm.TryAcquire(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = sm.Acquire(ctx, concurrency.Wait(50*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, concurrency.ErrFull, "nobody knows whether it is full")
			require.ErrorIs(t, p.Release(short), context.DeadlineExceeded)
			require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
			require.Less(t, time.Since(begun), 3*time.Second)
			c.Heal()
			require.NoError(t, p.Release(ctx), "it went on in the background")
			f.noKeys("queue/")
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
		})
	}
}

// T11, T23: a release whose answer is lost succeeds.
func TestReleaseWithLostAnswer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer, Times: 2})
	require.NoError(t, p.Release(ctx))
	f.noKeys("queue/")
}

// T20, F26: a copy of a release that arrives late does not remove the next request
// in the same slot.
func TestLateReleaseSparesTheSuccessor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	late := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	require.NoError(t, p.Release(ctx))
	keys := func() []string { return f.keys("queue/") }
	require.Empty(t, keys())
	next := acquire(t, ctx, sm)
	slot := keys()
	require.NoError(t, late.Release())
	require.Equal(t, slot, keys(), "the successor stands")
	require.NoError(t, next.Release(ctx))
}

// F24: the clean-up of a given-up request does not depend on the ctx that ended.
func TestCleanUpOutlivesCtx(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	given, cancel := context.WithCancel(ctx)
	w := ask(t, given, sm)
	// The first tries to remove it fail.
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: 3})
	cancel()
	require.ErrorIs(t, got(t, w, "giving up").err, context.Canceled)
	require.Eventually(t, func() bool { return len(f.keys("queue/")) == 1 }, soon, 5*time.Millisecond)
	require.NoError(t, p.Release(ctx))
}

// F28, F30, T21: a waiter whose session's lease is lost does not wait for those
// before it: it queues anew, and never returns a permit on the lost lease.
func TestWaiterOfALostLeaseQueuesAnew(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	other, _ := f.session(nil)
	mu, there := mutex(t, s, "x"), mutex(t, other, "x")
	holder, err := there.Lock(ctx)
	require.NoError(t, err)
	ch := make(chan answer, 1)
	go func() {
		p, err := mu.Lock(ctx)
		ch <- answer{p, err}
	}()
	standing := func(n int, lease clientv3.LeaseID) {
		require.Eventually(t, func() bool {
			st, err := there.Status(ctx)
			return err == nil && len(st.Waiters) == n && (n == 0 || st.Waiters[0].Lease != lease)
		}, soon, time.Millisecond)
	}
	standing(1, 0)
	old := s.Lease()
	require.NoError(t, f.RevokeLease(ctx, old))
	standing(1, old)
	require.NoError(t, holder.Release(ctx))
	p := granted(t, ch, "on the new lease")
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
}

// F29: a waiting request that was deleted by hand queues anew; one that someone
// created in its place is not taken for it.
func TestWaiterWhoseKeyWasReplaced(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	holder := f.keys("queue/")[0]
	w := ask(t, ctx, sm)
	anew := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	for _, key := range f.keys("queue/") {
		if key != holder {
			_, err := f.Client().Txn(ctx).Then(clientv3.OpDelete(key)).Commit()
			require.NoError(t, err)
			_, err = f.Client().Put(ctx, key, "an impostor", clientv3.WithLease(s.Lease()))
			require.NoError(t, err)
		}
	}
	require.NoError(t, anew.Wait(ctx))
	require.NoError(t, anew.Release())
	require.Eventually(t, func() bool { return len(f.keys("queue/")) == 3 }, soon, time.Millisecond, "it asks in another slot")
	require.NoError(t, p.Release(ctx))
	waiting(t, w, "the impostor is before it: it stands on a lease and counts")
	for _, key := range f.keys("queue/") {
		resp, err := f.Client().Get(ctx, key)
		require.NoError(t, err)
		if string(resp.Kvs[0].Value) == "an impostor" {
			_, err := f.Client().Delete(ctx, key)
			require.NoError(t, err)
		}
	}
	require.NoError(t, granted(t, w, "the impostor is gone").Release(ctx))
}

// F32, T6: compaction at the head, again and again, does not disturb waiting
// callers and leaves no key.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := f.Compact(ctx); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	var g gauge
	var wg sync.WaitGroup
	for range 3 {
		s, c := f.session(nil)
		mu := mutex(t, s, "x")
		wg.Go(func() {
			for i := range 20 {
				if i%5 == 4 { // the watch is set up anew, at a revision that is compacted
					c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith})
				}
				require.NoError(t, mu.Do(ctx, func(context.Context, *concurrency.Permit) error {
					g.enter(1)
					g.leave(1)
					return nil
				}))
			}
		})
	}
	wg.Wait()
	close(stop)
	<-done
	require.EqualValues(t, 1, g.peak.Load())
	f.noKeys("queue/")
}

// F33: a waiter whose watch is at a member that is cut off from the others is
// served through another member.
func TestWaiterAtACutMember(t *testing.T) {
	t.Parallel()
	f := own(t, 3)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	leader, err := f.WaitLeader(ctx)
	require.NoError(t, err)
	other := f.sessionOn(f.NewClientWith(t, &embedtest.ClientOptions{Endpoints: []string{f.Endpoints()[leader]}}).Client, nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	p := acquire(t, ctx, there)
	w := ask(t, ctx, sm)
	cut := (leader + 1) % 3
	require.NoError(t, f.CutPeers(cut))
	defer func() { _ = f.MendPeers(cut) }()
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "despite the cut member").Release(ctx))
}

// F39, T15, T13: keys that do not belong there block nobody and are told. They
// keep callers off the fast way only.
func TestForeignKeysBlockNobody(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	base := slot[:len(slot)-len("0000000000000000-0000")]
	for _, key := range []string{
		base + "0000000000000001-0000", // one of ours in form, but on no lease
		base + "nonsense", base, base + "\xff",
	} {
		_, err := f.Client().Put(ctx, key, "{")
		require.NoError(t, err)
	}
	p = acquire(t, ctx, sm)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 4, st.Foreign)
	require.Equal(t, 1, st.Held)
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	w := ask2(ctx, sm)
	require.NoError(t, p.Release(ctx))
	p = granted(t, w, "past the foreign keys")
	require.NoError(t, p.Release(ctx))
	p, err = sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// F40: the token is the create revision of the permit's own key, however it was
// acquired.
func TestTokenIsTheCreateRevision(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	check := func(p *concurrency.Permit) {
		resp, err := f.Client().Get(ctx, f.keys("queue/")[0])
		require.NoError(t, err)
		require.Equal(t, resp.Kvs[0].CreateRevision, p.Token())
		require.NoError(t, p.Release(ctx))
	}
	check(acquire(t, ctx, sm))
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	check(p)
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer})
	check(acquire(t, ctx, sm))
	p = acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	require.NoError(t, p.Release(ctx))
	check(granted(t, w, "by waiting"))
}

// F46: a Txn is not repeated blindly: with each of its answers lost, a request is
// still made once.
func TestRequestsAreNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 10)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	for skip := range 3 {
		c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer, Skip: skip})
		p := acquire(t, ctx, sm)
		require.Len(t, f.keys("queue/"), 1)
		require.NoError(t, p.Release(ctx))
	}
	f.noKeys("queue/")
}

// F47: the leader crashes while many acquire and release. Nobody fails, nobody
// overlaps, nothing is left.
func TestLeaderCrashUnderLoad(t *testing.T) {
	t.Parallel()
	f := own(t, 3)
	ctx := ctxT(t)
	var g gauge
	var wg sync.WaitGroup
	halfway := make(chan struct{})
	var once sync.Once
	for range 4 {
		s, _ := f.session(nil)
		sm := sem(t, s, "x", 2)
		wg.Go(func() {
			for i := range 30 {
				p, err := sm.Acquire(ctx)
				if !assertNoError(t, err) {
					return
				}
				g.enter(1)
				g.leave(1)
				assertNoError(t, p.Release(ctx))
				if i == 10 {
					once.Do(func() { close(halfway) })
				}
			}
		})
	}
	closed(t, halfway, "the load runs")
	leader, err := f.WaitLeader(ctx)
	require.NoError(t, err)
	require.NoError(t, f.Crash(leader))
	wg.Wait()
	require.LessOrEqual(t, g.peak.Load(), int64(2))
	require.NoError(t, f.Restart(ctx, leader))
	f.noKeys("queue/")
}

func assertNoError(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}
