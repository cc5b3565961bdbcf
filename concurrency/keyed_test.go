package concurrency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func keyed(t testing.TB, s *concurrency.Session, name string, limit int) *concurrency.KeyedLimiter {
	t.Helper()
	l, err := concurrency.NewKeyedLimiter(s, name, limit, nil)
	require.NoError(t, err)
	return l
}

// A key has the default limit, and is a queue of its own. Nothing of it is left without requests.
func TestKeyedLimiter(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := keyed(t, s, "llm", 2), keyed(t, other, "llm", 2)
	p, q := acquire(t, ctx, here.Key("a")), acquire(t, ctx, there.Key("a"))
	_, err := here.Key("a").TryAcquire(ctx)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "llm/a", Limit: 2, Used: 2, Level: concurrency.LevelKey}, *full)
	require.NoError(t, acquire(t, ctx, here.Key("b")).Release(ctx), "another key")
	first, second := ask(t, ctx, here.Key("a")), ask(t, ctx, there.Key("a"))
	require.NoError(t, q.Release(ctx))
	held := granted(t, first, "it came first")
	waiting(t, second, "two of two are held")
	st, err := there.Key("a").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 2, 1}, []int{st.Limit, st.Used, len(st.Holders), len(st.Waiters)})
	require.Equal(t, "llm/a", st.Name)
	require.NoError(t, p.Release(ctx))
	for _, p := range []*concurrency.Permit{held, granted(t, second, "one is free")} {
		require.NoError(t, p.Err())
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/key/")
	require.Len(t, f.Keys("/limiter/"), 1, "the default")
}

// Whatever options a semaphore has, a key has.
func TestKeyedLimiterOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := keyed(t, s, "llm", 3), keyed(t, other, "llm", 3)
	p := acquire(t, ctx, here.Key("a"), concurrency.Weight(3), concurrency.ID("flow-1"))
	_, err := there.Key("a").Acquire(ctx, concurrency.ID("flow-1"))
	require.ErrorIs(t, err, concurrency.ErrHeld)
	require.NoError(t, acquire(t, ctx, there.Key("b"), concurrency.ID("flow-1")).Release(ctx), "an ID is of one key")
	_, err = there.Key("a").Acquire(ctx, concurrency.MaxWaiters(0))
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.ErrorIs(t, refused(func() (*concurrency.Permit, error) {
		return there.Key("a").Acquire(ctx, concurrency.Wait(100*time.Millisecond))
	}), concurrency.ErrFull)
	require.NoError(t, there.Key("a").ReleaseID(ctx, "flow-1"), "a flow that ends in another process")
	got(t, p.Context().Done(), "the notice")
	require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
	p = acquire(t, ctx, here.Key("a"))
	require.NoError(t, there.Key("a").EvictToken(ctx, p.Token(), "stuck"))
	got(t, p.Context().Done(), "the notice")
	lostBy(t, p, concurrency.ErrEvicted)
	ran := false
	require.NoError(t, here.Key("a").Do(ctx, func(context.Context, *concurrency.Permit) error { ran = true; return nil }))
	require.True(t, ran)
	_, err = here.Key("a").Acquire(ctx, concurrency.Weight(4))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	f.NoKeys("/queue/")
}

// Only a key whose limit was changed has one of its own, and it can have the default again.
func TestKeyedLimiterOwnLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, admin := keyed(t, s, "llm", 1), keyed(t, other, "llm", 1)
	a := here.Key("a")
	p := acquire(t, ctx, a)
	w := ask(t, ctx, a)
	require.NoError(t, admin.Key("a").SetLimit(ctx, 2))
	q := granted(t, w, "the key's own limit is 2")
	w = ask(t, ctx, a)
	require.NoError(t, admin.SetDefault(ctx, 3))
	waiting(t, w, "the default is not for this key")
	require.NoError(t, admin.ClearLimit(ctx, "a"))
	r := granted(t, w, "the default is 3")
	require.NoError(t, admin.ClearLimit(ctx, "a"), "again: nothing to do")
	st, err := a.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{3, 3}, []int{st.Limit, st.Used})
	for _, p := range []*concurrency.Permit{p, q, r} {
		require.NoError(t, p.Release(ctx))
	}
	require.NoError(t, admin.ClearLimit(ctx, "b"), "it has none")
	require.Empty(t, f.Keys("/key/b/"))
	_, err = keyed(t, s, "new", 1).Key("a").Status(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, keyed(t, s, "new", 1).SetDefault(ctx, 2), concurrency.ErrNoLimit)
	require.ErrorIs(t, keyed(t, s, "new", 1).Key("a").SetLimit(ctx, 2), concurrency.ErrNoLimit)
	require.NoError(t, keyed(t, s, "new", 1).SetDefault(ctx, 2, concurrency.CreateLimit()))
}

// The default is changed for all keys at once. A program with another default is refused, unless it
// adopts that which is stored.
func TestKeyedLimiterDefault(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, admin := keyed(t, s, "llm", 1), keyed(t, other, "llm", 1)
	var held []*concurrency.Permit
	var waits []<-chan answer
	for i := range 5 {
		key := here.Key(fmt.Sprint(i))
		held = append(held, acquire(t, ctx, key))
		waits = append(waits, ask(t, ctx, key))
	}
	require.NoError(t, admin.SetDefault(ctx, 2))
	for _, w := range waits {
		held = append(held, granted(t, w, "two for each key"))
	}
	require.NoError(t, admin.SetDefault(ctx, 1))
	st, err := admin.Key("0").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 2}, []int{st.Limit, st.Used, len(st.Holders)}, "both hold, by the former default")
	require.NoError(t, held[0].Release(ctx))
	_, err = admin.Key("0").TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	for _, p := range held[1:] {
		require.NoError(t, p.Err())
		require.NoError(t, p.Release(ctx))
	}

	_, err = keyed(t, s, "llm", 7).Key("x").Acquire(ctx)
	var mismatch *concurrency.LimitMismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, []any{"llm", 1, 7}, []any{mismatch.Name, mismatch.Stored, mismatch.Wanted})
	require.ErrorContains(t, err, "KeyedLimiterOptions.AdoptLimit, or call SetDefault")
	adopts, err := concurrency.NewKeyedLimiter(s, "llm", 7, &concurrency.KeyedLimiterOptions{AdoptLimit: true})
	require.NoError(t, err)
	require.NoError(t, acquire(t, ctx, adopts.Key("x")).Release(ctx))
	f.NoKeys("/key/")
}

// N3: the view sees the end of a holder before a change of the default that came first. It only
// suggests: a read at one revision grants.
func TestTrapN3DefaultBehindTheView(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := keyed(t, s, "llm", 3), keyed(t, other, "llm", 3)
	var held []*concurrency.Permit
	for range 3 {
		held = append(held, acquire(t, ctx, there.Key("a")))
	}
	w := ask(t, ctx, here.Key("a"))
	f.seesKey(ctx, here, "a")
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/default")})
	confirms := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Pass, Times: -1, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) == 3 && strings.HasSuffix(string(r.Success[0].GetRequestRange().GetKey()), "/limit")
	}})
	require.NoError(t, there.SetDefault(ctx, 1))
	require.NoError(t, held[0].Release(ctx))
	require.NoError(t, confirms.WaitHit(ctx), "by the view it fits")
	f.seesKey(ctx, here, "a")
	waiting(t, w, "two hold, and the default is 1")
	require.NoError(t, held[1].Release(ctx))
	f.seesKey(ctx, here, "a")
	waiting(t, w, "one holds, and the default is 1")
	require.NoError(t, held[2].Release(ctx))
	require.NoError(t, granted(t, w, "none holds").Release(ctx))
}

// N4: a limit that was cleared says which requests it had admitted, and a key's limit that is changed
// while the default is lowered misses none.
func TestTrapN4LimitOfAKey(t *testing.T) {
	t.Parallel()
	t.Run("cleared", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		ctx := ctxT(t)
		s, _ := f.Session(idle())
		lim := keyed(t, s, "llm", 1)
		require.NoError(t, lim.Key("a").SetLimit(ctx, 3, concurrency.CreateLimit()))
		var held []*concurrency.Permit
		for range 3 {
			held = append(held, acquire(t, ctx, lim.Key("a")))
		}
		w := ask(t, ctx, lim.Key("a"))
		f.seesKey(ctx, lim, "a")
		require.NoError(t, lim.ClearLimit(ctx, "a"))
		st, err := lim.Key("a").Status(ctx)
		require.NoError(t, err)
		require.Equal(t, []int{1, 3, 3, 1}, []int{st.Limit, st.Used, len(st.Holders), len(st.Waiters)}, "exactly those hold")
		for _, p := range held {
			waiting(t, w, "the default is 1")
			require.NoError(t, p.Release(ctx))
		}
		require.NoError(t, granted(t, w, "none holds").Release(ctx))
	})
	t.Run("changed while the default is", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		ctx := ctxT(t)
		s, _ := f.Session(idle())
		other, c := f.Session(idle())
		lim, admin := keyed(t, s, "llm", 1), keyed(t, other, "llm", 1)
		held := []*concurrency.Permit{acquire(t, ctx, lim.Key("a"))}
		between := c.Inject(embedtest.Fault{Method: "Txn", Skip: 1, Do: embedtest.Pass, Before: func() {
			assertNoError(t, lim.SetDefault(ctx, 3))
			for range 2 {
				p, err := lim.Key("a").Acquire(ctx)
				assertNoError(t, err)
				held = append(held, p)
			}
		}})
		require.NoError(t, admin.Key("a").SetLimit(ctx, 1))
		require.Equal(t, 1, between.Hits(), "the change")
		st, err := lim.Key("a").Status(ctx)
		require.NoError(t, err)
		require.Equal(t, []int{1, 3, 3}, []int{st.Limit, st.Used, len(st.Holders)})
		for _, p := range held {
			require.NoError(t, p.Err())
			require.NoError(t, p.Release(ctx))
		}
	})
}

// A default that was deleted by hand is stored again as it was, by a caller or by a process that
// waits.
func TestDeletedDefaultComesBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := keyed(t, s, "llm", 1)
	p := acquire(t, ctx, lim.Key("a"))
	require.NoError(t, lim.SetDefault(ctx, 2))
	q := acquire(t, ctx, lim.Key("a"))
	w := ask(t, ctx, lim.Key("a"))
	f.seesKey(ctx, lim, "a")
	_, err := f.Client().Delete(ctx, f.Keys("/default")[0])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.Keys("/default")) == 1 }, soon, tick, "the process that waits stores it")
	require.NoError(t, p.Release(ctx))
	r := granted(t, w, "one is free")
	_, err = f.Client().Delete(ctx, f.Keys("/default")[0])
	require.NoError(t, err)
	_, err = lim.Key("a").TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, q.Release(ctx))
	require.NoError(t, r.Release(ctx))
}

// Every key of a limiter is any text but the empty one; none is taken for another.
func TestKeysOfALimiter(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	rapid.Check(t, func(rt *rapid.T) {
		ctx := ctxT(t)
		lim := keyed(t, s, "llm", 1)
		a := rapid.StringMatching(`[a/%*\x00é\-]{1,6}`).Draw(rt, "a")
		b := rapid.StringMatching(`[a/%*\x00é\-]{1,6}`).Draw(rt, "b")
		p := acquire(t, ctx, lim.Key(a))
		q, err := lim.Key(b).TryAcquire(ctx)
		if a == b {
			require.ErrorIs(rt, err, concurrency.ErrFull)
		} else {
			require.NoError(rt, err)
			require.NoError(rt, q.Release(ctx))
		}
		require.NoError(rt, p.Release(ctx))
	})
	ctx := ctxT(t)
	lim := keyed(t, s, "llm", 1)
	for _, key := range []string{"", strings.Repeat("k", 256), strings.Repeat("k", 10<<10)} {
		k := lim.Key(key)
		_, err := k.Acquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		require.Less(t, len(err.Error()), 500, "the text is not as long as the key")
		_, err = k.TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		require.ErrorIs(t, k.SetLimit(ctx, 1), concurrency.ErrInvalid)
		_, err = k.Status(ctx)
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		require.ErrorIs(t, k.Evict(ctx, "i", ""), concurrency.ErrInvalid)
		require.ErrorIs(t, k.ReleaseID(ctx, "i"), concurrency.ErrInvalid)
		require.ErrorIs(t, lim.ClearLimit(ctx, key), concurrency.ErrInvalid)
		for _, err := range k.Watch(ctx) {
			require.ErrorIs(t, err, concurrency.ErrInvalid)
		}
	}
	f.NoKeys("/key/")
}

// SetLimit of a key says nothing of the default: the next call for a permit stores it, or compares it
// with this program's.
func TestLimitOfAKeyIsNotTheDefault(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := keyed(t, s, "llm", 1)
	require.NoError(t, lim.Key("a").SetLimit(ctx, 2, concurrency.CreateLimit()))
	p, q := acquire(t, ctx, lim.Key("a")), acquire(t, ctx, lim.Key("a"))
	require.Len(t, f.Keys("/default"), 1)
	w := ask(t, ctx, lim.Key("a"))
	f.seesKey(ctx, lim, "a")
	require.NoError(t, lim.ClearLimit(ctx, "a"))
	require.NoError(t, p.Release(ctx))
	waiting(t, w, "one holds, and the default is 1")
	require.NoError(t, q.Release(ctx))
	require.NoError(t, granted(t, w, "none holds").Release(ctx))

	another := keyed(t, s, "llm", 7)
	require.NoError(t, another.Key("b").SetLimit(ctx, 3))
	_, err := another.Key("b").Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrLimitMismatch, "the default is 1")
}

func TestNewKeyedLimiterInvalid(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	for name, err := range map[string]error{
		"a nil session":  second(concurrency.NewKeyedLimiter(nil, "x", 1, nil)),
		"an empty name":  second(concurrency.NewKeyedLimiter(s, "", 1, nil)),
		"a slash":        second(concurrency.NewKeyedLimiter(s, "a/b", 1, nil)),
		"a limit below":  second(concurrency.NewKeyedLimiter(s, "x", -1, nil)),
		"a limit beyond": second(concurrency.NewKeyedLimiter(s, "x", 1<<31, nil)),
	} {
		require.ErrorIs(t, err, concurrency.ErrInvalid, name)
	}
	lim := keyed(t, s, "x", 1)
	require.NoError(t, s.Close(ctxT(t)))
	require.ErrorIs(t, second(concurrency.NewKeyedLimiter(s, "x", 1, nil)), concurrency.ErrClosed)
	_, err := lim.Key("a").Acquire(ctxT(t))
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorIs(t, lim.SetDefault(ctxT(t), 2), concurrency.ErrClosed)
}

func second[T any](_ T, err error) error { return err }
