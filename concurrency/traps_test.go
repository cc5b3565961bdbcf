package concurrency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Two requests that a foreign batch creates at one revision are told apart by
// their keys, in the same way by all. (Group commit, where the trap was found,
// is to come; its rule is that no batch holds two requests of one queue.)
func TestTrapS1Batches(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	base := strings.TrimSuffix(slot, "0000")
	resp, err := f.Client().Txn(ctx).Then(
		clientv3.OpPut(base+"0010", "{}", clientv3.WithLease(s.Lease())),
		clientv3.OpPut(base+"0009", "{}", clientv3.WithLease(s.Lease())),
	).Commit()
	require.NoError(t, err)
	other, _ := f.session(nil)
	for _, who := range []*concurrency.Semaphore{sm, sem(t, other, "x", 1)} {
		st, err := who.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, st.Held)
		require.Len(t, st.Waiters, 1)
		require.Equal(t, resp.Header.Revision, st.Holders[0].Token)
	}
}

// A slot that is put again, for a new owner or by hand, does not carry the former
// owner's rights on: his guard fails, although the create revision is the same.
// Without a lease it is ignored.
func TestTrapS2OwnershipByPut(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.keys("queue/light/")[0]
	_, err := f.Client().Put(ctx, slot, `{"v":1,"holder":"thief"}`, clientv3.WithLease(s.Lease()))
	require.NoError(t, err)
	resp, err := c.Txn(ctx).If(p.Guard()).Commit()
	require.NoError(t, err)
	require.False(t, resp.Succeeded, "the key is not what the permit was granted for")
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "it keeps its place, on a lease")
	_, err = f.Client().Put(ctx, slot, `{"v":1,"holder":"thief"}`)
	require.NoError(t, err)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, st.Foreign)
	require.Zero(t, st.Held)
	_ = p.Release(ctx)
}

// A change of the limit that arrives late does not undo a newer one, and
// SetLimit(0) followed by "nobody held" is a barrier, even for a waiter that was
// admitted just before and hears of it late.
func TestTrapS6Limit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	admin, ac := f.session(nil)
	sm, control := sem(t, s, "x", 1), sem(t, admin, "x", 1)
	p := acquire(t, ctx, sm)

	late := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	given, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- control.SetLimit(given, 50) }()
	require.NoError(t, late.Wait(ctx))
	cancel()
	require.ErrorIs(t, got(t, done, "giving up"), context.Canceled)
	require.NoError(t, sm.SetLimit(ctx, 2))
	require.NoError(t, late.Release())
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Limit, "the late change is void")

	// The waiter's mirror hears nothing from here on.
	second := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldAnswer})
	require.NoError(t, p.Release(ctx))
	require.NoError(t, mute.Wait(ctx))
	require.NoError(t, control.SetLimit(ctx, 0))
	st, err = control.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Held, "the waiter was admitted before the pause")
	require.Empty(t, st.Waiters)
	mute.Remove()
	require.NoError(t, mute.Release())
	q := granted(t, w, "it holds as of before the pause")
	require.NoError(t, q.Release(ctx))
	require.NoError(t, second.Release(ctx))
	st, err = control.Status(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Held)

	// The same where the watch is lost and only a list tells of both.
	require.NoError(t, control.SetLimit(ctx, 1))
	p = acquire(t, ctx, sm)
	w = ask(t, ctx, sm)
	broken := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldAnswer})
	require.NoError(t, p.Release(ctx))
	require.NoError(t, broken.Wait(ctx))
	require.NoError(t, control.SetLimit(ctx, 0))
	broken.Remove()
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith})
	require.NoError(t, broken.Release())
	require.NoError(t, granted(t, w, "by the list").Release(ctx))
}

// A setter that dies between changing the limit and telling exactly who had been
// admitted leaves a record that tells too many as holders, never too few.
func TestTrapS6UnsettledLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	admin, ac := f.session(nil)
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

// Rank depends on names and create revisions, never on a value that somebody can
// overwrite or that cannot be read.
func TestTrapS7MutableRankInputs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 4)
	p := acquire(t, ctx, sm, concurrency.Weight(3))
	w := ask(t, ctx, sm, concurrency.Weight(2))
	for _, value := range []string{`{"v":1,"weight":1}`, "\xff not JSON", `{"v":99}`, ""} {
		for _, key := range f.keys("queue/") {
			_, err := f.Client().Put(ctx, key, value, clientv3.WithLease(s.Lease()))
			require.NoError(t, err)
		}
		st, err := sm.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, st.Held)
		require.Len(t, st.Waiters, 1)
		require.Zero(t, st.Foreign)
		waiting(t, w, "the holder's weight is what it was")
	}
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "the waiter").Release(ctx))
}

// A victim of an early end (eviction, takeover) hears of it by the one range that
// its session watches, also when that watch was broken meanwhile.
func TestTrapS9EarlyEndIsTold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	admin, _ := f.session(nil)
	p := acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
	lost := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropAnswer})
	require.NoError(t, sem(t, admin, "x", 1).Evict(ctx, "i", "why"))
	require.NoError(t, lost.Wait(ctx))
	require.NoError(t, p.Err(), "the word was lost, and the permit believes in itself")
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.FailWith}) // the next message breaks it
	acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
	require.NoError(t, sem(t, admin, "x", 1).Evict(ctx, "i", "again"))
	closed(t, p.Lost(), "the list tells what the watch has lost")
	require.ErrorContains(t, p.Err(), "why")
}

// While etcd is out of space, acquiring fails clearly, releasing works, and
// nothing is left.
func TestTrapL3NoSpace(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, _ := f.session(nil)
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
	f.noKeys("queue/")
	require.NoError(t, f.SetNoSpace(ctx, false))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	f.noKeys("queue/")
}

// F45: "no space" can be the answer to a request that was applied.
func TestNoSpaceAfterApply(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer, Err: rpctypes.ErrGRPCNoSpace})
	_, err := sm.Acquire(ctx)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	f.noKeys("queue/")
	p := acquire(t, ctx, sm)
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropAnswer, Err: rpctypes.ErrGRPCNoSpace})
	require.NoError(t, p.Release(ctx))
	f.noKeys("queue/")
}

// The key of a try that is about to go makes nobody fail when nobody holds.
func TestTrapL4Try(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	other, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	slot := f.keys("queue/light/")[0]
	require.NoError(t, p.Release(ctx))
	plant := func() { // a try that will find itself too late
		_, err := f.Client().Put(ctx, slot+"-try", "{}", clientv3.WithLease(other.Lease()))
		require.NoError(t, err)
	}
	plant()
	gone := time.AfterFunc(20*time.Millisecond, func() { _, _ = f.Client().Delete(ctx, slot+"-try") })
	defer gone.Stop()
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))

	plant() // one that stays does hold
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.Len(t, f.keys("queue/"), 1, "and those who were refused leave nothing")
}

// Whoever comes between a try's look at the queue and its request is seen.
func TestTrapL4NobodySlipsIn(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	other, _ := f.session(nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	var p *concurrency.Permit
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Before: func() { p = acquire(t, ctx, there) }})
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, p.Release(ctx))
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Before: func() { require.NoError(t, there.SetLimit(ctx, 0)) }})
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "the limit counts as of the request")
	f.noKeys("queue/")
}

// Many tries at once: never more than the limit, and never all refused while a
// permit is free.
func TestTriesInACrowd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var g gauge
	type result struct{ won, refused int }
	results := make(chan result, 8)
	for range 8 {
		s, _ := f.session(nil)
		sm := sem(t, s, "x", 3)
		go func() {
			var r result
			for range 25 {
				p, err := sm.TryAcquire(ctx)
				if errors.Is(err, concurrency.ErrFull) {
					r.refused++
					continue
				}
				if !assertNoError(t, err) {
					break
				}
				g.enter(1)
				r.won++
				g.leave(1)
				assertNoError(t, p.Release(ctx))
			}
			results <- r
		}()
	}
	var sum result
	for range 8 {
		r := got(t, results, "the tries end")
		sum.won, sum.refused = sum.won+r.won, sum.refused+r.refused
	}
	t.Logf("won %d, refused %d, peak %d", sum.won, sum.refused, g.peak.Load())
	require.LessOrEqual(t, g.peak.Load(), int64(3))
	require.Positive(t, sum.won)
	f.noKeys("queue/")
}

// A waiter that became heavier than the limit tells its caller instead of blocking
// the queue; a pause is no such case.
func TestTrapL5TooHeavyWaiter(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
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
	q := granted(t, light, "it does not stand behind the heavy one any more")
	require.NoError(t, p.Release(ctx))
	require.NoError(t, q.Release(ctx))
	f.noKeys("queue/")
}

// T12: the limit is not looked at when a permit is released; a limit that was
// deleted, or that nobody can read, frees and eats nothing.
func TestDamagedLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 2)
	p, q := acquire(t, ctx, sm), acquire(t, ctx, sm)
	key := f.keys("/limit")[0]
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
	f.noKeys("queue/")
}

// F42: the load of waiting: one watch per process and name, whoever waits, and a
// release costs one Txn.
func TestLoadBudget(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, c := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // stores the limit
	// The limit was read twice, and the session lists its own range once.
	require.Eventually(t, func() bool { return c.Requests()["Range"] == 3 }, soon, time.Millisecond)
	count := func(what string, want map[string]int, entries uint64, fn func()) {
		t.Helper()
		c.ResetRequests()
		index := f.RaftIndex()
		fn()
		got := c.Requests()
		for _, quiet := range []string{"LeaseKeepAlive.Send", "LeaseKeepAlive"} {
			delete(got, quiet)
		}
		for method, n := range got {
			require.LessOrEqual(t, n, want[method], "%s: %s in %v", what, method, got)
		}
		require.LessOrEqual(t, f.RaftIndex()-index, entries, "Raft entries of %s", what)
	}
	var p *concurrency.Permit
	count("an uncontended acquire", map[string]int{"Txn": 1}, 1, func() { p = acquire(t, ctx, sm) })
	count("a refused try", map[string]int{"Range": 1}, 0, func() {
		_, err := sm.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
	})
	var w []<-chan answer
	count("64 waiters", map[string]int{"Txn": 64, "Range": 1, "Watch.Send": 1}, 64, func() {
		for range 64 {
			w = append(w, ask2(ctx, sm))
		}
		require.Eventually(t, func() bool { return len(f.keys("queue/")) == 65 && c.Requests()["Range"] > 0 }, soon, time.Millisecond)
	})
	next := make(chan *concurrency.Permit, 64)
	for _, ch := range w {
		go func() {
			a := <-ch
			assertNoError(t, a.err)
			next <- a.p
		}()
	}
	for range w {
		count("a release with waiters", map[string]int{"Txn": 1}, 1, func() {
			require.NoError(t, p.Release(ctx))
			p = got(t, next, "the next in the queue")
		})
	}
	require.NoError(t, p.Release(ctx))
	require.Equal(t, 1, c.OpenStreams()["Watch"])
	require.Equal(t, 1, c.OpenStreams()["LeaseKeepAlive"])
}
