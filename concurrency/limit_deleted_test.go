package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// deleteLimit takes the limit away by hand, as no one should.
func (f fixture) deleteLimit() {
	f.T.Helper()
	_, err := f.Client().Delete(ctxT(f.T), f.Keys("/limit")[0])
	require.NoError(f.T, err)
}

// A limit that was deleted by hand comes back, whatever is called next.
func TestDeletedLimitComesBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	f.deleteLimit()
	require.NoError(t, p.Release(ctx))
	p = granted(t, w, "a waiter stores it again")

	f.deleteLimit()
	_, err := sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, &concurrency.FullError{Name: "x", Limit: 1, Used: 1}, full)
	require.NoError(t, p.Release(ctx))
	f.deleteLimit()
	p, err = sm.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))

	require.NoError(t, sm.SetLimit(ctx, 3))
	f.deleteLimit()
	require.NoError(t, acquire(t, ctx, sm, concurrency.Weight(3)).Release(ctx), "as it was last seen here")
}

// SetLimit is the first call that a process makes. It knows the limit from then on.
func TestDeletedLimitAfterSetLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 5)
	require.NoError(t, sm.SetLimit(ctx, 5, concurrency.CreateLimit()))
	f.deleteLimit()
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 5, st.Limit)
}

// A waiter does not wait behind a limit that cannot be read.
func TestWaiterOfADamagedLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	w := ask(t, ctx, sm)
	_, err := f.Client().Put(ctx, f.Keys("/limit")[0], "bad")
	require.NoError(t, err)
	require.ErrorContains(t, got(t, w, "it fails").err, "cannot be read")
	require.NoError(t, p.Err(), "holders stay")
	require.NoError(t, p.Release(ctx))
	f.NoKeys("queue/")
}

// A record of admissions later than itself, as one copied from another
// etcd may, cannot be read: it admits no request, by whatever call, and
// only its deletion replaces it.
func TestLimitOfTheFutureAdmitsNoRequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	next := ask(t, ctx, sm)
	f.sees(ctx, sm)
	_, err := f.Client().Put(ctx, f.Keys("/limit")[0], `{"v":1,"limit":1,"nonce":"n","at":1,"through":9000000000,"settled":true}`)
	require.NoError(t, err)
	require.ErrorContains(t, got(t, next, "the waiter").err, "cannot be read")
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{0, 0, true}, []any{st.Limit, st.Foreign, st.Unreadable != nil})
	require.GreaterOrEqual(t, st.Used, 1, "each request that may hold is shown")
	require.NoError(t, p.Err(), "holders stay")
	for range 2 { // while one holds, and then none
		_, err = sm.Acquire(ctx)
		require.ErrorContains(t, err, "cannot be read")
		_, err = sm.TryAcquire(ctx)
		require.ErrorContains(t, err, "cannot be read")
		require.ErrorContains(t, sm.SetLimit(ctx, 5), "cannot be read")
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("queue/")
	f.deleteLimit()
	require.NoError(t, acquire(t, ctx, sm).Release(ctx), "as it was last seen here")
}

// A damaged limit is shown, however often it is written, until it is mended. It
// counted as a foreign key (A407 in internal/proof/tested-failures.md).
func TestDamagedLimitIsShown(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	s, _ := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	limit := f.Keys("/limit")[0]
	good, err := f.Client().Get(ctx, limit)
	require.NoError(t, err)
	var bad, mended int64
	for st, err := range sm.Watch(ctx) {
		require.NoError(t, err)
		switch {
		case bad == 0:
			for range 3 {
				resp, err := f.Client().Put(ctx, limit, "bad")
				require.NoError(t, err)
				bad = resp.Header.Revision
			}
			require.NoError(t, concurrency.AwaitView(ctx, sm, bad)) // the next state is of all three
		case mended == 0:
			require.GreaterOrEqual(t, st.Revision, bad)
			require.Equal(t, []any{0, false, true}, []any{st.Foreign, st.Stored, st.Unreadable != nil})
			resp, err := f.Client().Put(ctx, limit, string(good.Kvs[0].Value))
			require.NoError(t, err)
			mended = resp.Header.Revision
		default:
			require.GreaterOrEqual(t, st.Revision, mended)
			require.Equal(t, 1, st.Limit)
			require.Equal(t, []any{0, true, false}, []any{st.Foreign, st.Stored, st.Unreadable != nil})
			return
		}
	}
}

// A program that is built with a limit of 0 does not pause the others unseen. To
// pause is what SetLimit is for.
func TestOnlySetLimitPausesAll(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	other, _ := f.Session(nil)
	_, err := sem(t, s, "x", 0).TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	var mismatch *concurrency.LimitMismatchError
	_, err = sem(t, other, "x", 5).TryAcquire(ctx)
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, &concurrency.LimitMismatchError{Name: "x", Stored: 0, Wanted: 5}, mismatch)

	sm := sem(t, other, "x", 5)
	require.NoError(t, sm.SetLimit(ctx, 5))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	require.NoError(t, sm.SetLimit(ctx, 0))
	f.deleteLimit()
	_, err = sm.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "still paused")
	third, _ := f.Session(nil)
	_, err = sem(t, third, "x", 5).TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "paused is no mismatch")
}

// A limit that was lowered after this process has seen it: what never fits is reported
// so, in a try, too.
func TestTryTooHeavyForALoweredLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	other, _ := f.Session(nil)
	sm := sem(t, s, "x", 5)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	require.NoError(t, sem(t, other, "x", 5).SetLimit(ctx, 3))
	_, err := sm.TryAcquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	_, err = sm.Acquire(ctx, concurrency.Weight(4), concurrency.MaxWaiters(1))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.Empty(t, f.Keys("queue/"))
}

// A607: the limit of a key that was deleted by hand is not stored again: the default is in force for the key, also if the key was
// paused. Its calls go by the default from then on.
func TestDeletedLimitOfAKey(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(nil)
	lim, err := concurrency.NewKeyedLimiter(s, "llm", 2, nil)
	require.NoError(t, err)
	a := lim.Key("a")
	require.NoError(t, acquire(t, ctx, a).Release(ctx), "its default is stored")
	require.NoError(t, a.SetLimit(ctx, 0))
	paused := ask(t, ctx, a)
	_, err = f.Client().Delete(ctx, f.Keys("/key/a/limit")[0])
	require.NoError(t, err)
	granted(t, paused, "the default is in force")
	acquire(t, ctx, a)
	st, err := a.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{2, 2}, []int{st.Limit, st.Used})
	_, err = a.TryAcquire(ctx)
	require.ErrorContains(t, err, "2 of 2 in use, 0 waiting")
	require.EqualValues(t, 2, concurrency.SeenLimit(a))
	require.Empty(t, f.Keys("/key/a/limit"))
}
