package concurrency_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// T29, T37: bad input answers at once, says what is wrong, and leaves nothing in
// etcd.
func TestBadInput(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	before := f.Keys("")

	for _, name := range []string{"", "a/b", "/", "a\x00b", "\xff", "a\xff", "\n", strings.Repeat("x", 256)} {
		_, err := concurrency.NewSemaphore(s, name, 1, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", name)
		_, err = concurrency.NewMutex(s, name)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", name)
		_, err = concurrency.NewSession(ctx, c.Client, name, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", name)
	}
	for _, limit := range []int{-1, math.MinInt, math.MaxInt32 + 1} {
		_, err := concurrency.NewSemaphore(s, "x", limit, nil)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%d", limit)
		require.ErrorContains(t, err, `"x"`)
	}
	_, err := concurrency.NewSemaphore(nil, "x", 1, nil)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	_, err = concurrency.NewMutex(nil, "x")
	require.ErrorIs(t, err, concurrency.ErrInvalid)

	for _, owner := range []string{"a\x00b", "web\u202e7", "\xff", "a\nb", strings.Repeat("x", 256)} {
		_, err := concurrency.NewSession(ctx, c.Client, "test", &concurrency.SessionOptions{Prefix: f.Root, Owner: owner})
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", owner)
	}

	sm := sem(t, s, "x", 3)
	mu := mutex(t, s, "x")
	type opts = []concurrency.AcquireOption
	for what, o := range map[string]opts{
		"weight 0":                 {concurrency.Weight(0)},
		"weight below 0":           {concurrency.Weight(-1)},
		"weight beyond all limits": {concurrency.Weight(math.MaxInt)},
		"wait below 0":             {concurrency.Wait(-time.Second)},
		"hold 0":                   {concurrency.MaxHold(0)},
		"hold below a ms":          {concurrency.MaxHold(time.Microsecond)},
		"waiters below 0":          {concurrency.MaxWaiters(-1)},
		"waiters far below 0":      {concurrency.MaxWaiters(math.MinInt)},
		"empty ID":                 {concurrency.ID("")},
		"long ID":                  {concurrency.ID(strings.Repeat("x", 256))},
		"take over nothing":        {concurrency.TakeOver()},
		"nil option":               {nil},
	} {
		_, err := sm.Acquire(ctx, o...)
		require.ErrorIs(t, err, concurrency.ErrInvalid, what)
		_, err = sm.TryAcquire(ctx, o...)
		require.ErrorIs(t, err, concurrency.ErrInvalid, what)
		_, err = mu.Lock(ctx, o...)
		require.ErrorIs(t, err, concurrency.ErrInvalid, what)
		require.ErrorIs(t, sm.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }, o...), concurrency.ErrInvalid, what)
	}
	_, err = sm.TryAcquire(ctx, concurrency.Wait(time.Second))
	require.ErrorIs(t, err, concurrency.ErrInvalid, "a try does not wait")
	_, err = sm.TryAcquire(ctx, concurrency.MaxWaiters(1))
	require.ErrorIs(t, err, concurrency.ErrInvalid, "a try does not wait")
	_, err = mu.Lock(ctx, concurrency.Weight(2))
	require.ErrorIs(t, err, concurrency.ErrInvalid, "a mutex has one permit")
	require.ErrorIs(t, sm.Do(ctx, nil), concurrency.ErrInvalid)
	require.ErrorIs(t, mu.Do(ctx, nil), concurrency.ErrInvalid)
	require.ErrorIs(t, sm.SetLimit(ctx, -1), concurrency.ErrInvalid)
	require.ErrorIs(t, sm.SetLimit(ctx, 3, nil), concurrency.ErrInvalid, "a nil option")
	_, err = sm.Status(ctx, nil)
	require.ErrorIs(t, err, concurrency.ErrInvalid, "a nil option")
	require.ErrorIs(t, sm.Evict(ctx, "", ""), concurrency.ErrInvalid)
	require.ErrorIs(t, sm.ReleaseID(ctx, ""), concurrency.ErrInvalid)
	require.ErrorIs(t, sm.Evict(ctx, "i", "\xff"), concurrency.ErrInvalid)
	require.ErrorIs(t, sm.EvictToken(ctx, 1, strings.Repeat("x", 1025)), concurrency.ErrInvalid)
	_, err = sm.Acquire(ctx, concurrency.MaxWaiters(0), concurrency.Wait(time.Second))
	require.ErrorIs(t, err, concurrency.ErrInvalid, "a wait behind no request")
	_, err = sm.Acquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrInvalid, "above the limit that it would store")
	adopts, err := concurrency.NewSemaphore(s, "x", 3, &concurrency.SemaphoreOptions{AdoptLimit: true})
	require.NoError(t, err)
	_, err = adopts.Acquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrInvalid, "no other limit is stored")

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = sm.Acquire(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = sm.TryAcquire(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = mu.Lock(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, sm.SetLimit(ended, 4), context.Canceled)
	require.Equal(t, before, f.Keys(""), "nothing was written")

	// A weight above the limit is reported with the limit in force.
	_, err = sm.Acquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.ErrorContains(t, err, "4")
	require.Empty(t, f.Keys("queue/"))
	require.NoError(t, sm.SetLimit(ctx, 4, concurrency.CreateLimit()))
	require.NoError(t, acquire(t, ctx, sm, concurrency.Weight(4)).Release(ctx))

	// Where nothing has to be looked up first, a ctx that has ended asks nothing.
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	asked := func() int { r := c.Requests(); return r["Txn"] + r["Range"] }
	c.ResetRequests()
	for _, call := range []func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error){sm.Acquire, sm.TryAcquire, mu.Lock, mu.TryLock} {
		_, err = call(ended)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Zero(t, asked())

	require.NoError(t, s.Close(ctx))
	_, err = sm.Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	_, err = mu.Lock(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorIs(t, sm.SetLimit(ctx, 4), concurrency.ErrClosed)
	_, err = sm.Status(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorIs(t, sm.Evict(ctx, "i", ""), concurrency.ErrClosed)
	for _, err := range sm.Watch(ctx) {
		require.ErrorIs(t, err, concurrency.ErrClosed)
	}
	_, err = concurrency.NewSemaphore(s, "y", 1, nil)
	require.ErrorIs(t, err, concurrency.ErrClosed)
}

// F41: programs that disagree on the limit get an error before they take a permit;
// one that asks for it adopts the stored limit; a paused one agrees with all.
func TestLimitMismatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(nil)
	b, _ := f.Session(nil)
	require.NoError(t, acquire(t, ctx, sem(t, a, "x", 3)).Release(ctx))
	other := sem(t, b, "x", 5)
	_, err := other.Acquire(ctx)
	var mismatch *concurrency.LimitMismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, concurrency.LimitMismatchError{Name: "x", Stored: 3, Wanted: 5}, *mismatch)
	_, err = other.TryAcquire(ctx)
	require.ErrorAs(t, err, &mismatch, "and again, until it is mended")

	adopts, err := concurrency.NewSemaphore(b, "x", 5, &concurrency.SemaphoreOptions{AdoptLimit: true})
	require.NoError(t, err)
	require.NoError(t, acquire(t, ctx, adopts, concurrency.Weight(3)).Release(ctx))
	_, err = adopts.Acquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrInvalid)

	require.NoError(t, other.SetLimit(ctx, 5))
	require.NoError(t, acquire(t, ctx, other, concurrency.Weight(5)).Release(ctx))
	require.NoError(t, other.SetLimit(ctx, 0))
	c, _ := f.Session(nil)
	late := sem(t, c, "x", 4)
	_, err = late.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "paused, not in disagreement")
	w := ask(t, ctx, late)
	require.NoError(t, other.SetLimit(ctx, 1))
	granted(t, w, "the pause is over")
}
