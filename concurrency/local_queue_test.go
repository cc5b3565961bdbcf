package concurrency_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// lines returns a semaphore with Handover.
func lines(t *testing.T, s *concurrency.Session, o concurrency.SemaphoreOptions) *concurrency.Semaphore {
	t.Helper()
	sm, err := concurrency.NewSemaphore(s, "x", 1, &o)
	require.NoError(t, err)
	return sm
}

// MaxHold is that of the call that gave it. A call gives up at the moment at which a permit passes to it:
// whether it has the permit or not, its MaxHold does not end that of the next call in the local queue.
func TestMaxHoldOfACallThatGivesUp(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	for range 20 {
		s, _ := f.Session(idle())
		sm := lines(t, s, concurrency.SemaphoreOptions{Handover: 10 * time.Second})
		first := acquire(t, ctx, sm)
		wait, giveUp := context.WithCancel(ctx)
		a := ask2(wait, sm, concurrency.MaxHold(20*time.Millisecond))
		require.Eventually(t, func() bool { return concurrency.LocalCalls(sm) == 1 }, soon, tick)
		b := ask2(ctx, sm)
		require.Eventually(t, func() bool { return concurrency.LocalCalls(sm) == 2 }, soon, tick)
		giveUp()
		require.NoError(t, first.Release(ctx))
		if got := <-a; got.err == nil {
			if err := got.p.Release(ctx); err != nil {
				require.ErrorIs(t, err, concurrency.ErrTooLong)
			}
		}
		p := granted(t, b, "it is next")
		time.Sleep(30 * time.Millisecond) // the other's MaxHold, which nothing shows if it has no effect
		require.NoError(t, p.Err())
		require.NoError(t, p.Release(ctx), "its key was there all the time")
		_ = s.Close(ctx) // two seconds may be too short on a busy machine; nothing depends on it
	}
}

// A key that is idle for too long is removed when a call finds it. No call had a permit then, so none is
// reported as lost.
func TestNoLossOfAPermitThatNobodyHad(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	var lost atomic.Int64
	o := idle()
	o.Hooks = testkit.Trace{Lost: func(*concurrency.LostError) { lost.Add(1) }}.Hooks()
	s, _ := f.Session(o)
	sm := lines(t, s, concurrency.SemaphoreOptions{Keep: 20 * time.Millisecond})
	const hold = 200 * time.Millisecond
	for end := time.Now().Add(2 * hold); time.Now().Before(end); {
		p, err := sm.Acquire(ctx, concurrency.MaxHold(hold))
		require.NoError(t, err)
		if err := p.Release(ctx); err != nil { // a pause of the process
			require.ErrorIs(t, err, concurrency.ErrTooLong)
			lost.Add(-1)
		}
	}
	time.Sleep(hold + hold/4) // until MaxHold of the last one would have passed
	require.Zero(t, lost.Load())
}

// A call in the local queue whose wait ends says what etcd has counted for its fetch, and has nothing listed.
func TestWaitInALocalQueueEnds(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	plain := sem(t, s, "x", 1)
	acquire(t, ctx, plain)
	const others = 20
	for range others {
		ask(t, ctx, plain)
	}
	f.queued(1 + others)
	own, _ := f.Session(idle())
	sm := lines(t, own, concurrency.SemaphoreOptions{Handover: time.Minute})
	ask2(ctx, sm)
	f.queued(2 + others)
	require.Eventually(t, func() bool { return concurrency.Sleeps(sm) }, soon, tick)
	_, err := sm.Acquire(ctx, concurrency.Wait(10*time.Millisecond))
	full, ok := errors.AsType[*concurrency.FullError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 1, full.Used)
	require.Equal(t, others, full.Waiting)
	require.False(t, concurrency.Follows(sm))
	late, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = sm.Acquire(late)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "1 of 1 in use, 20 waiting")
}

// The request of a local queue is removed when no call is left in it, however long permits may pass: others
// count it as one that waits.
func TestRequestOfAnEmptyLocalQueue(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	acquire(t, ctx, sem(t, s, "x", 1))
	own, _ := f.Session(idle())
	sm := lines(t, own, concurrency.SemaphoreOptions{Handover: time.Minute})
	require.ErrorIs(t, refused(func() (*concurrency.Permit, error) {
		return sm.Acquire(ctx, concurrency.Wait(100*time.Millisecond))
	}), concurrency.ErrFull)
	f.queued(1) // within less than Handover
}

// With Keep and Handover a permit that would stay goes to the calls that wait, also if its time to pass
// beside requests of others is over: no later call has it before them.
func TestLocalQueueBeforeLaterCalls(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, c := f.Session(idle())
	sm := lines(t, s, concurrency.SemaphoreOptions{Keep: time.Hour, Handover: time.Millisecond})
	kept := func() *concurrency.Permit { // a permit that would stay, and whose Handover is over
		for {
			p := acquire(t, ctx, sm)
			require.NoError(t, p.Release(ctx))
			c.ResetRequests()
			p = acquire(t, ctx, sm)
			if c.Requests()["Txn"] == 0 {
				time.Sleep(2 * time.Millisecond)
				return p
			}
			require.NoError(t, p.Release(ctx))
		}
	}
	for range 20 {
		p := kept()
		held := make(chan struct{})
		hold := c.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.Pass, Before: func() { <-held }, Match: func(_ string, msg any) bool {
			r, ok := msg.(*etcdserverpb.TxnRequest)
			return ok && len(r.Success) > 0
		}})
		first := ask2(ctx, sm) // its request in etcd is held up
		require.Eventually(t, func() bool { return concurrency.LocalCalls(sm) == 1 }, soon, tick)
		require.NoError(t, p.Release(ctx))
		passed := concurrency.LocalCalls(sm) == 0
		hold.Remove()
		close(held)
		require.NoError(t, granted(t, first, "it is next").Release(ctx))
		if passed {
			return
		}
	}
	t.Error("no permit that could stay passed to the call in the local queue, in 20 attempts")
}

// A limit of 0 stops the calls in the local queue as well, however long permits may pass.
func TestPauseStopsALocalQueue(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	sm := lines(t, s, concurrency.SemaphoreOptions{Handover: time.Minute})
	p := acquire(t, ctx, sm)
	waits := ask2(ctx, sm)
	require.Eventually(t, func() bool { return concurrency.LocalCalls(sm) == 1 }, soon, tick)
	f.queued(2) // it follows the queue, or is about to
	other, _ := f.Session(idle())
	operator := sem(t, other, "x", 1)
	require.NoError(t, operator.SetLimit(ctx, 0))
	require.Eventually(t, func() bool { return concurrency.LimitOf(sm) == 0 }, soon, tick)
	require.NoError(t, p.Release(ctx))
	require.Equal(t, 1, concurrency.LocalCalls(sm))
	require.NoError(t, operator.SetLimit(ctx, 1))
	require.NoError(t, granted(t, waits, "the limit is as before").Release(ctx))
}

// A260: the wait of a call ends while the fetch after the one that was granted is on its way to etcd. What etcd has
// answered last says how full the queue is: the call is refused, and not left in doubt.
func TestWaitEndsBetweenFetches(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	first := acquire(t, ctx, sem(t, s, "x", 1))
	own, c := f.Session(idle())
	sm := lines(t, own, concurrency.SemaphoreOptions{Handover: time.Minute})
	a := ask2(ctx, sm)
	f.queued(2)
	_ = ask2(ctx, sm)
	short := func() (*concurrency.FullError, error) {
		_, err := sm.Acquire(ctx, concurrency.Wait(20*time.Millisecond))
		full, _ := errors.AsType[*concurrency.FullError](err)
		if away, is := errors.AsType[*concurrency.UnavailableError](err); is { // the machine is slow
			full = away.Seen
		}
		return full, err
	}
	require.Eventually(t, func() bool { full, _ := short(); return full != nil && full.Used == 1 }, soon, tick)
	inj := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Times: -1, Match: func(_ string, msg any) bool {
		r := msg.(*etcdserverpb.TxnRequest)
		return len(r.Success) > 0 && r.Success[0].GetRequestPut() != nil
	}})
	require.NoError(t, first.Release(ctx))
	granted(t, a, "it is first")
	require.NoError(t, inj.WaitHit(ctx))
	full, err := short()
	require.NotNil(t, full, "%v", err)
	require.Equal(t, 1, full.Used, "%v", err)
	inj.Remove()
	require.NoError(t, inj.Release())
}

// A602: the request of a third call, above MaxPermits, ends neither of the first two, whose requests wait in etcd.
func TestLocalQueueAtMaxPermits(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	held := acquire(t, ctx, sem(t, s, "x", 5), concurrency.Weight(5))
	o := idle()
	o.MaxPermits = 2
	own, _ := f.Session(o)
	sm, err := concurrency.NewSemaphore(own, "x", 5, &concurrency.SemaphoreOptions{Handover: time.Minute})
	require.NoError(t, err)
	var calls []<-chan answer
	for i := range 2 {
		calls = append(calls, ask2(ctx, sm))
		f.queued(2 + i)
	}
	third := ask2(ctx, sm)
	require.Eventually(t, func() bool { return concurrency.LocalCalls(sm) == 3 }, soon, tick)
	require.NoError(t, held.Release(ctx))
	for _, call := range calls {
		require.NoError(t, granted(t, call, "its request waited").Release(ctx))
	}
	if a := got(t, third, "two are granted"); a.err != nil {
		require.ErrorIs(t, a.err, concurrency.ErrTooMany, "it comes while both are held")
	}
}

// A650: an operator removes the requests of a process but one: no call ends, and the process has as many again as its calls need.
func TestRemovedFetchesAreReplaced(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	held := acquire(t, ctx, sem(t, s, "x", 3), concurrency.Weight(3))
	own, _ := f.Session(idle())
	sm, err := concurrency.NewSemaphore(own, "x", 3, &concurrency.SemaphoreOptions{Handover: time.Minute})
	require.NoError(t, err)
	var calls []<-chan answer
	for i := range 3 {
		calls = append(calls, ask2(ctx, sm))
		f.queued(2 + i)
	}
	state, err := sm.Status(ctx)
	require.NoError(t, err)
	for _, w := range state.Waiters[1:] {
		require.NoError(t, sem(t, s, "x", 3).EvictToken(ctx, w.Token, "why"))
	}
	f.queued(4)
	require.Equal(t, 3, concurrency.LocalCalls(sm))
	require.NoError(t, held.Release(ctx))
	for _, call := range calls {
		granted(t, call, "there is room")
	}
}
