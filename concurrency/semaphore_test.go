package concurrency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// gauge measures how many are inside at once, in this process and apart from
// etcd.
type gauge struct{ now, peak atomic.Int64 }

func (g *gauge) enter(n int64) {
	now := g.now.Add(n)
	for p := g.peak.Load(); now > p && !g.peak.CompareAndSwap(p, now); p = g.peak.Load() {
	}
}
func (g *gauge) leave(n int64) { g.now.Add(-n) }

// answer is what an Acquire in a goroutine has to tell.
type answer struct {
	p   *concurrency.Permit
	err error
}

// ask calls Acquire in a goroutine and returns when its request stands in etcd, or
// the answer is there.
func ask(t testing.TB, ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) <-chan answer {
	t.Helper()
	note := rand.Text()
	ch := ask2(ctx, sm, append(slices.Clone(opts), concurrency.Note(note))...)
	require.Eventually(t, func() bool {
		now, err := sm.Status(ctx)
		mine := func(r concurrency.Request) bool { return r.Note == note }
		return len(ch) > 0 || err == nil && (slices.ContainsFunc(now.Holders, mine) || slices.ContainsFunc(now.Waiters, mine))
	}, soon, time.Millisecond, "the request does not appear")
	return ch
}

func granted(t testing.TB, ch <-chan answer, what string) *concurrency.Permit {
	t.Helper()
	a := got(t, ch, what)
	require.NoError(t, a.err, what)
	return a.p
}

func acquire(t testing.TB, ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) *concurrency.Permit {
	t.Helper()
	p, err := sm.Acquire(ctx, opts...)
	require.NoError(t, err)
	return p
}

func waiting(t testing.TB, ch <-chan answer, why string) {
	t.Helper()
	select {
	case a := <-ch:
		require.FailNow(t, "it did not wait: "+why, "%v", a.err)
	default:
	}
}

// T28: the limit is reached exactly, not passed and not missed by one; with
// weights as well.
func TestLimitIsExact(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 5)
	var held []*concurrency.Permit
	for _, w := range []int{1, 3, 1} {
		p, err := sm.TryAcquire(ctx, concurrency.Weight(w))
		require.NoError(t, err)
		held = append(held, p)
	}
	_, err := sm.TryAcquire(ctx)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "x", Limit: 5, Held: 5}, *full)
	require.NoError(t, held[1].Release(ctx))
	_, err = sm.TryAcquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrFull, "4 of 3 free")
	p, err := sm.TryAcquire(ctx, concurrency.Weight(3))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// T1, T7, T8: whoever is first in the queue and gives up lets the next one in and
// leaves no key.
func TestFrontWaiterGivesUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 2)
	one := acquire(t, ctx, sm)
	front, cancel := context.WithCancelCause(ctx)
	why := errors.New("changed my mind")
	heavy := ask(t, front, sm, concurrency.Weight(2))
	light := ask(t, ctx, sm)
	waiting(t, light, "the heavy request is before it")
	cancel(why)
	a := got(t, heavy, "the front waiter gives up")
	require.ErrorIs(t, a.err, context.Canceled)
	p := granted(t, light, "the next one is served although nothing was released")
	require.NoError(t, p.Release(ctx))
	require.NoError(t, one.Release(ctx))
	f.noKeys("queue/")
}

// T7: acquiring with a ctx that ends at about the instant of the grant either
// gives a permit or leaves nothing.
func TestCancelAtTheInstantOfTheGrant(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	other, _ := f.session(nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	outcomes := map[bool]int{}
	for i := range 60 {
		holder := acquire(t, ctx, there)
		one, cancel := context.WithCancel(ctx)
		ch := ask(t, one, sm)
		go func() { _ = holder.Release(ctx) }()
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel) // some before, some after
		a := got(t, ch, "an end")
		outcomes[a.err == nil]++
		if a.err == nil {
			require.NoError(t, a.p.Release(ctx))
		} else {
			require.ErrorIs(t, a.err, context.Canceled)
		}
		cancel()
		require.NoError(t, acquire(t, ctx, there).Release(ctx), "nothing is stuck")
	}
	t.Log("granted and cancelled:", outcomes)
	f.noKeys("queue/")
}

// T2: raising the limit wakes all who fit now.
func TestRaisedLimitWakesWaiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	admin, _ := f.session(nil)
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

// T4: when one event frees several permits, several waiters enter, light and
// heavy.
func TestOneEventFreesMany(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	dying, _ := f.session(nil)
	sm, doomed := sem(t, s, "x", 6), sem(t, dying, "x", 6)
	for range 3 {
		acquire(t, ctx, doomed, concurrency.Weight(2))
	}
	var chs []<-chan answer
	for _, w := range []int{1, 3, 1, 1} {
		chs = append(chs, ask(t, ctx, sm, concurrency.Weight(w)))
	}
	require.NoError(t, f.RevokeLease(ctx, dying.Lease()))
	for i, ch := range chs {
		granted(t, ch, fmt.Sprint("waiter ", i))
	}
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 6, st.Held)
}

// T5, T35: all free permits are used at once, in the order of the requests; a
// heavy request waits for its turn and is not starved by light ones, and nobody
// holds a part of what he asked for.
func TestHeavyIsNotStarvedNorPartial(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.session(nil)
	b, _ := f.session(nil)
	sa, sb := sem(t, a, "x", 4), sem(t, b, "x", 4)
	one, two := acquire(t, ctx, sa, concurrency.Weight(2)), acquire(t, ctx, sb)
	h1 := ask(t, ctx, sa, concurrency.Weight(3))
	h2 := ask(t, ctx, sb, concurrency.Weight(3))
	light := ask(t, ctx, sa)
	waiting(t, light, "it fits beside the holders, but stands behind two heavy ones")
	_, err := sb.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "a try does not overtake either")
	require.NoError(t, one.Release(ctx))
	p1 := granted(t, h1, "the first heavy one")
	waiting(t, h2, "only one of them fits")
	waiting(t, light, "it is behind the second heavy one")
	require.NoError(t, two.Release(ctx))
	require.NoError(t, p1.Release(ctx))
	granted(t, h2, "the second heavy one")
	granted(t, light, "and the light one beside it")
}

// T16: a new process counts the holders that were there before it.
func TestNewcomersSeeHolders(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	old, _ := f.session(nil)
	for range 3 {
		acquire(t, ctx, sem(t, old, "x", 3))
	}
	fresh, _ := f.session(nil)
	_, err := sem(t, fresh, "x", 3).TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
}

// T17, T18: setting the limit refills nothing, and lowering it below the present
// use admits nobody until enough is released. Status tells holders from waiters
// all the while.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	admin, _ := f.session(nil)
	sm, control := sem(t, s, "x", 4), sem(t, admin, "x", 4)
	var held []*concurrency.Permit
	for range 4 {
		held = append(held, acquire(t, ctx, sm))
	}
	require.NoError(t, control.SetLimit(ctx, 4))
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "setting the same limit refills nothing")

	w1, w2 := ask(t, ctx, sm), ask(t, ctx, sm)
	for _, n := range []int{1, 3, 2} { // down and up: they stay holders
		require.NoError(t, control.SetLimit(ctx, n))
		st, err := control.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 4, st.Held)
	}
	for i := range 3 {
		st, err := control.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, 4-i, st.Held, "after %d releases", i)
		require.Len(t, st.Waiters, 2)
		_, err = control.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
		if i < 2 {
			waiting(t, w1, "more than the limit are held")
			require.NoError(t, held[i].Release(ctx))
		}
	}
	waiting(t, w1, "two of two are held")
	require.NoError(t, held[2].Release(ctx))
	p := granted(t, w1, "one of two is held")
	require.NoError(t, held[3].Release(ctx))
	require.NoError(t, p.Release(ctx))
	granted(t, w2, "the last")
}

// T19: releasing twice, at once or one after the other, never frees more than one
// permit.
func TestDoubleRelease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 2)
	p, keep := acquire(t, ctx, sm), acquire(t, ctx, sm)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { require.NoError(t, p.Release(ctx)) })
	}
	wg.Wait()
	next := acquire(t, ctx, sm) // it may stand in the same slot
	require.NoError(t, p.Release(ctx))
	require.NoError(t, next.Err())
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, keep.Release(ctx))
	require.NoError(t, next.Release(ctx))
}

// T24, F31: two goroutines of one session are two requests.
func TestGoroutinesOfOneSessionExclude(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	var g gauge
	var wg sync.WaitGroup
	for range 8 {
		mu := mutex(t, s, "x") // also by two values of one name
		wg.Go(func() {
			for range 10 {
				require.NoError(t, mu.Do(ctx, func(context.Context, *concurrency.Permit) error {
					g.enter(1)
					runtime.Gosched()
					g.leave(1)
					return nil
				}))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, g.peak.Load())
}

// T14: a function that panics or exits its goroutine gives its permit back.
func TestDoSurvivesPanicAndGoexit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	require.PanicsWithValue(t, "boom", func() {
		_ = sm.Do(ctx, func(context.Context, *concurrency.Permit) error { panic("boom") })
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = sm.Do(ctx, func(context.Context, *concurrency.Permit) error { runtime.Goexit(); return nil })
	}()
	closed(t, done, "Goexit")
	p, err := sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

func TestDoBoundsTheFunction(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(ctxT(t), key{}, "value"))
	mine := errors.New("mine")
	err := sm.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		require.Equal(t, "value", ctx.Value(key{}))
		require.Equal(t, "value", p.Context().Value(key{}))
		cancel()
		closed(t, ctx.Done(), "the caller's ctx bounds the function")
		require.NoError(t, p.Err(), "but not the permit")
		return mine
	})
	require.Equal(t, mine, err, "the release in the background is no news")
	f.noKeys("queue/")

	// A lost permit ends the function's ctx with its cause and is told even
	// if the function succeeds.
	err = sm.Do(ctxT(t), func(ctx context.Context, p *concurrency.Permit) error {
		require.NoError(t, sm.EvictToken(ctxT(t), p.Token(), "for a test"))
		closed(t, ctx.Done(), "eviction ends the function's ctx")
		require.ErrorIs(t, context.Cause(ctx), concurrency.ErrEvicted)
		return nil
	})
	require.ErrorIs(t, err, concurrency.ErrLost)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorContains(t, err, "for a test")
}

// T31: the bound on the wait is kept under many wake-ups, and told apart from
// ctx's.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	other, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	holder := acquire(t, ctx, sm)
	noise, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { // each of these wakes the mirror twice
		for noise.Err() == nil {
			_, _ = sem(t, other, "x", 1).Acquire(noise, concurrency.Wait(2*time.Millisecond))
		}
	})
	const d = 300 * time.Millisecond
	begun := time.Now()
	_, err := sm.Acquire(ctx, concurrency.Wait(d))
	took := time.Since(begun)
	stop()
	wg.Wait()
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, 1, full.Held)
	require.Equal(t, 1, full.Limit)
	require.GreaterOrEqual(t, took, d)
	require.Less(t, took, d+2*time.Second)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = sm.Acquire(short, concurrency.Wait(time.Hour))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, holder.Release(ctx))
	f.noKeys("queue/")
}

func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.session(nil)
	sm := sem(t, s, "x", 1)
	holder := acquire(t, ctx, sm, concurrency.MaxWaiters(0))
	first := ask(t, ctx, sm, concurrency.MaxWaiters(1))
	_, err := sm.Acquire(ctx, concurrency.MaxWaiters(1))
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "x", Limit: 1, Held: 1, Waiting: 1}, *full)
	second := ask(t, ctx, sm, concurrency.MaxWaiters(2))
	require.NoError(t, holder.Release(ctx))
	require.NoError(t, granted(t, first, "first").Release(ctx))
	require.NoError(t, granted(t, second, "second").Release(ctx))
	f.noKeys("queue/")
}

// T30: MaxHold takes a stuck permit back, and only that: holders that renew are
// not touched.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	lost := make(chan *concurrency.LostError, 10)
	s, _ := f.session(&concurrency.SessionOptions{Trace: &concurrency.Trace{Lost: func(e *concurrency.LostError) { lost <- e }}})
	sm := sem(t, s, "x", 2)
	stuck := acquire(t, ctx, sm, concurrency.MaxHold(50*time.Millisecond))
	fine := acquire(t, ctx, sm)
	require.False(t, stuck.Deadline().After(time.Now().Add(50*time.Millisecond)))
	next := ask(t, ctx, sm)
	closed(t, stuck.Lost(), "held too long")
	require.ErrorIs(t, context.Cause(stuck.Context()), concurrency.ErrHeldTooLong)
	require.Equal(t, stuck.Token(), got(t, lost, "the hook").Token)
	p := granted(t, next, "the stuck permit is free")
	require.ErrorIs(t, stuck.Release(ctx), concurrency.ErrHeldTooLong)
	require.NoError(t, fine.Err())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, fine.Release(ctx))
}

// Requests are granted in the order of their create revisions: 128 waiters over 8
// sessions on a limit of 1.
func TestWaitersAreServedInRevisionOrder(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const sessions, waiters = 8, 128
	var mus []*concurrency.Mutex
	for range sessions {
		s, _ := f.session(nil)
		mus = append(mus, mutex(t, s, "x"))
	}
	holder, err := mus[0].Lock(ctx)
	require.NoError(t, err)
	var mu sync.Mutex
	var order []int64
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			require.NoError(t, mus[i%sessions].Do(ctx, func(_ context.Context, p *concurrency.Permit) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, p.Token())
				return nil
			}))
		})
	}
	require.Eventually(t, func() bool {
		st, err := mus[0].Status(ctx)
		return err == nil && len(st.Waiters) == waiters
	}, soon, 10*time.Millisecond)
	st, err := mus[0].Status(ctx)
	require.NoError(t, err)
	require.NoError(t, holder.Release(ctx))
	wg.Wait()
	require.True(t, slices.IsSorted(order), "%v", order)
	for i, r := range st.Waiters {
		require.Equal(t, r.Token, order[i])
	}
}

// The guard is true in a Txn while the permit stands and false from its release
// on, even if the slot is taken anew.
func TestGuard(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.session(nil)
	mu := mutex(t, s, "x")
	first, err := mu.Lock(ctx)
	require.NoError(t, err)
	write := func(p *concurrency.Permit) bool {
		resp, err := c.Txn(ctx).If(p.Guard()).Then(clientv3.OpPut(f.prefix+"effect", "x")).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	require.True(t, write(first))
	require.NoError(t, first.Release(ctx))
	require.False(t, write(first))
	second, err := mu.Lock(ctx)
	require.NoError(t, err)
	require.Greater(t, second.Token(), first.Token(), "G3: tokens rise")
	require.False(t, write(first))
	require.True(t, write(second))
}
