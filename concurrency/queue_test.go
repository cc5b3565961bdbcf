package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// T1, T7, T8: the first request of the queue that gives up lets the next one in and
// leaves no key.
func TestFrontWaiterGivesUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
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
	f.NoKeys("queue/")
}

// T7: acquiring with a ctx that ends at about the instant of the grant either
// gives a permit or leaves nothing.
func TestCancelAtTheInstantOfTheGrant(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	other, _ := f.Session(nil)
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
	f.NoKeys("queue/")
}

// T4: when one event frees several permits, several waiters enter, light and
// heavy. T13: a process that is gone leaves no key, neither of its requests nor of
// their IDs.
func TestOneEventFreesMany(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	dying, _ := f.Session(nil)
	sm, doomed := sem(t, s, "x", 6), sem(t, dying, "x", 6)
	for i := range 3 {
		acquire(t, ctx, doomed, concurrency.Weight(2), concurrency.ID(fmt.Sprint("job ", i)))
	}
	require.Len(t, f.Keys("/request-id/"), 3)
	var chs []<-chan answer
	for _, w := range []int{1, 3, 1, 1} {
		chs = append(chs, ask(t, ctx, sm, concurrency.Weight(w)))
	}
	f.sees(ctx, sm)
	require.NoError(t, f.RevokeLease(ctx, dying.Lease()))
	for i, ch := range chs {
		granted(t, ch, fmt.Sprint("waiter ", i))
	}
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 6, st.Used)
	require.Empty(t, f.Keys("/request-id/"))
}

// T5, T35: all free permits are used at once, in the order of the requests; a
// heavy request waits for its turn and is not starved by light ones, and no request
// holds a part of its weight.
func TestHeavyIsNotStarvedNorPartial(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(nil)
	b, _ := f.Session(nil)
	sa, sb := sem(t, a, "x", 4), sem(t, b, "x", 4)
	one, two := acquire(t, ctx, sa, concurrency.Weight(2)), acquire(t, ctx, sb)
	h1 := ask(t, ctx, sa, concurrency.Weight(3))
	h2 := ask(t, ctx, sb, concurrency.Weight(3))
	light := ask(t, ctx, sa)
	waiting(t, light, "it fits beside the holders, but is behind two heavy ones")
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

// Requests are granted in the order of their create revisions: 128 waiters over 8
// sessions on a limit of 1.
func TestWaitersAreServedInRevisionOrder(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const sessions, waiters = 8, 128
	var mus []*concurrency.Mutex
	for range sessions {
		s, _ := f.Session(nil)
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

// T31: what ended the wait is reported: its own bound, or ctx.
func TestEndOfCtxIsNotFull(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	holder := acquire(t, ctx, sm)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := sm.Acquire(short, concurrency.Wait(time.Hour))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, holder.Release(ctx))
	f.NoKeys("queue/")
}

func TestMaxWaiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	holder := acquire(t, ctx, sm, concurrency.MaxWaiters(0))
	first := ask(t, ctx, sm, concurrency.MaxWaiters(1))
	_, err := sm.Acquire(ctx, concurrency.MaxWaiters(1))
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "x", Limit: 1, Used: 1, Waiting: 1}, *full)
	second := ask(t, ctx, sm, concurrency.MaxWaiters(2))
	require.NoError(t, holder.Release(ctx))
	require.NoError(t, granted(t, first, "first").Release(ctx))
	require.NoError(t, granted(t, second, "second").Release(ctx))
	f.NoKeys("queue/")
}
