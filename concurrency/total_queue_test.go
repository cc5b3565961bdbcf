package concurrency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/record"
)

// waitsInTotal waits until so many requests wait for the total of a limiter. None of those calls may
// have an answer.
func waitsInTotal(t testing.TB, ctx context.Context, lim *concurrency.KeyedLimiter, n int, calls ...<-chan answer) {
	t.Helper()
	answered := func(call <-chan answer) bool { return len(call) > 0 }
	require.Eventually(t, func() bool {
		st, err := lim.Total().Status(ctx)
		return slices.ContainsFunc(calls, answered) || err == nil && len(st.Waiters) == n
	}, soon, tick)
	require.False(t, slices.ContainsFunc(calls, answered), "a call that is to wait was answered")
}

// MaxWaiters counts the waiters of the key alone, and not those of other keys in the total (N7).
func TestTrapN7MaxWaitersOfTheKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 3, 1)
	p := acquire(t, ctx, lim.Key("busy"))
	var others []<-chan answer
	for _, key := range []string{"a", "b"} {
		for range 3 {
			others = append(others, ask(t, ctx, lim.Key(key)))
			waitsInTotal(t, ctx, lim, len(others)) // it may join the total later than its key
		}
	}
	quiet := ask(t, ctx, lim.Key("quiet"), concurrency.MaxWaiters(1))
	waitsInTotal(t, ctx, lim, 7, quiet)
	waiting(t, quiet, "six of other keys are before it")
	more := ask(t, ctx, lim.Key("quiet"), concurrency.MaxWaiters(1))
	waitsInTotal(t, ctx, lim, 8)
	third := ask(t, ctx, lim.Key("quiet"), concurrency.MaxWaiters(1))
	waitsInTotal(t, ctx, lim, 9)
	at := ask(t, ctx, lim.Key("quiet"), concurrency.MaxWaiters(1)) // the key's limit is 3: it waits there
	_, err := lim.Key("quiet").Acquire(ctx, concurrency.MaxWaiters(1))
	require.ErrorIs(t, err, concurrency.ErrFull, "one waits at the key")
	for _, ch := range append(others, quiet, more, third, at) {
		require.NoError(t, p.Release(ctx))
		p = granted(t, ch, "in the order of the total")
	}
	require.NoError(t, p.Release(ctx))
	f.NoKeys("/queue/")
}

// MaxTotalWaiters refuses to wait for the total behind so many others, and names the total.
func TestMaxTotalWaiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim, err := concurrency.NewKeyedLimiter(s, "llm", 2, &concurrency.KeyedLimiterOptions{Total: 2, MaxTotalWaiters: 2})
	require.NoError(t, err)
	p := acquire(t, ctx, lim.Key("a"), concurrency.Weight(2))
	first, second := ask(t, ctx, lim.Key("b")), ask(t, ctx, lim.Key("c"))
	waitsInTotal(t, ctx, lim, 2)
	atItsKey := ask(t, ctx, lim.Key("a"))
	refused := func() {
		t.Helper()
		bounded, cancel := context.WithTimeout(ctx, soon/4)
		defer cancel()
		_, err := lim.Key("quiet").Acquire(bounded, concurrency.Wait(time.Hour))
		var full *concurrency.FullError
		require.ErrorAs(t, err, &full)
		require.Equal(t, concurrency.FullError{Name: "llm", Limit: 2, Used: 2, Waiting: 2, Level: concurrency.LevelTotal, RetryAfter: full.RetryAfter}, *full)
		require.Eventually(t, func() bool { return len(f.Keys("/quiet/queue/")) == 0 }, soon, tick, "the request is being removed")
	}
	refused() // a heavy request is in the queue, so it is read
	require.NoError(t, p.Release(ctx))
	one, two := granted(t, first, "one of two is free"), granted(t, second, "the other is")
	waitsInTotal(t, ctx, lim, 1) // that of a
	fourth := ask(t, ctx, lim.Key("d"))
	waitsInTotal(t, ctx, lim, 2)
	refused()
	_, err = lim.Key("quiet").TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, one.Release(ctx))
	a := granted(t, atItsKey, "the next")
	require.NoError(t, a.Release(ctx))
	for _, p := range []*concurrency.Permit{two, granted(t, fourth, "the next")} {
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}

// crowded puts requests of other sessions into the queue of a limiter's total.
func (f fixture) crowded(ctx context.Context, lim *concurrency.KeyedLimiter, n int) {
	f.T.Helper()
	require.NoError(f.T, acquire(f.T, ctx, lim.Key("first")).Release(ctx), "the limits are stored")
	of, _, _ := strings.Cut(f.Keys("/default")[0], "/default")
	lease, err := f.Client().Grant(ctx, 600)
	require.NoError(f.T, err)
	for from := 0; from < n; from += 100 {
		var ops []clientv3.Op
		for i := from; i < min(n, from+100); i++ {
			value := record.Request{Nonce: fmt.Sprint(i), Owner: "crowd", AtMS: 1}
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s/total/queue/light/%016x-%04x", of, int64(lease.ID), i), value.Encode(), clientv3.WithLease(lease.ID)))
		}
		_, err := f.Client().Txn(ctx).Then(ops...).Commit()
		require.NoError(f.T, err)
	}
}

// A refusal by counts cannot tell the holders above a lowered limit from waiters: their sum is right.
func TestCountsAfterALowering(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 5, 310)
	f.crowded(ctx, lim, 310)
	refused := func() (used, waiting int) {
		t.Helper()
		_, err := lim.Key("a").TryAcquire(ctx)
		full, ok := errors.AsType[*concurrency.FullError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, concurrency.LevelTotal, full.Level)
		return full.Used, full.Waiting
	}
	used, waiting := refused()
	require.Equal(t, [2]int{310, 0}, [2]int{used, waiting})
	require.NoError(t, lim.Total().SetLimit(ctx, 300))
	used, waiting = refused()
	require.Equal(t, [2]int{300, 10}, [2]int{used, waiting})
	require.NoError(t, lim.Total().SetLimit(ctx, 200)) // counts do not decide in a short queue
	used, waiting = refused()
	require.Equal(t, [2]int{310, 0}, [2]int{used, waiting})
}

// ranged matches Txns with a condition over all requests of a total.
func ranged(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	if !ok {
		return false
	}
	for _, c := range r.Compare {
		if bytes.HasSuffix(c.Key, []byte("/total/queue/")) && len(c.RangeEnd) > 0 {
			return true
		}
	}
	return false
}

// In a crowd, tries decide by counts: no condition over all requests is sent, and a refusal writes
// nothing (N7).
func TestTrapN7TriesByCounts(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	lim := totaled(t, s, "llm", 5, 300)
	require.NoError(t, func() error { p, err := lim.Key("a").TryAcquire(ctx); return errOf(p, err, ctx) }())
	conditions := c.Inject(embedtest.Fault{Method: "Txn", Match: ranged, Times: -1, Do: embedtest.Pass})
	p, err := lim.Key("a").TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, conditions.Hits(), "a try in a short queue")
	require.NoError(t, p.Release(ctx))

	f.crowded(ctx, lim, 298)
	p, err = lim.Key("a").TryAcquire(ctx)
	require.NoError(t, err)
	q, err := lim.Key("b").TryAcquire(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, conditions.Hits(), "none in a crowd")
	writes := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Times: -1, Do: embedtest.Pass})
	_, err = lim.Key("c").TryAcquire(ctx)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "llm", Limit: 300, Used: 300, Level: concurrency.LevelTotal, RetryAfter: full.RetryAfter}, *full)
	require.Zero(t, writes.Hits(), "a refusal writes nothing")
	writes.Remove()
	require.NoError(t, p.Release(ctx))

	// Another request comes between the look and the Txn: its counts refuse the try.
	late := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, Before: func() {
		other, _ := f.Session(idle())
		p = acquire(t, ctx, totaled(t, other, "llm", 5, 300).Key("d"))
	}})
	_, err = lim.Key("c").TryAcquire(ctx)
	require.ErrorAs(t, err, &full)
	require.Equal(t, 1, late.Hits())
	require.Equal(t, 300, full.Used)
	require.Eventually(t, func() bool { return len(f.Keys("/c/queue/")) == 0 }, soon, tick)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, q.Release(ctx))
}

// A146: a release of this process is under way, and the total is full without it: a try waits for a moment whether
// that changes, and writes nothing; in a crowd that is full all the same, counts decide at once.
func TestTryBesideAReleaseInAFullTotal(t *testing.T) {
	t.Parallel()
	for name, crowd := range map[string]int{"few": 0, "a crowd": 305} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			total := 2
			if crowd > 0 {
				total = 300
			}
			lim := totaled(t, s, "llm", 5, total)
			p, q := acquire(t, ctx, lim.Key("a")), acquire(t, ctx, lim.Key("b"))
			if crowd > 0 {
				f.crowded(ctx, lim, crowd)
			}
			removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
			released := make(chan error, 1)
			go func() { released <- p.Release(ctx) }()
			require.NoError(t, removal.WaitHit(ctx))
			writes := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Times: -1, Do: embedtest.Pass})
			names := c.Inject(embedtest.Fault{Match: listsOf("/total/"), Times: -1, Do: embedtest.Pass})
			_, err := lim.Key("c").TryAcquire(ctx)
			var full *concurrency.FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, concurrency.LevelTotal, full.Level)
			require.Zero(t, writes.Hits(), "a refusal writes nothing")
			if crowd > 0 {
				require.Zero(t, names.Hits(), "counts decide")
			}
			require.NoError(t, removal.Release())
			require.NoError(t, got(t, released, "Release returns"))
			if crowd == 0 {
				again, err := lim.Key("c").TryAcquire(ctx)
				require.NoError(t, err)
				require.NoError(t, again.Release(ctx))
			}
			require.NoError(t, q.Release(ctx))
		})
	}
}

// Which level has refused a request is found by counts, unless requests wait for the total.
func TestTrapN7Blame(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	lim := totaled(t, s, "llm", 1, 2)
	reads := c.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.Pass, Match: func(_ string, msg any) bool {
		for _, op := range msg.(*etcdserverpb.TxnRequest).Success {
			if r := op.GetRequestRange(); r != nil && bytes.HasSuffix(r.Key, []byte("/total/")) && !r.CountOnly {
				return true
			}
		}
		return false
	}})
	a := acquire(t, ctx, lim.Key("a"))
	level := func(key string) concurrency.Level {
		_, err := lim.Key(key).TryAcquire(ctx)
		var full *concurrency.FullError
		require.ErrorAs(t, err, &full)
		return full.Level
	}
	require.Equal(t, concurrency.LevelKey, level("a"))
	b := acquire(t, ctx, lim.Key("b"))
	require.Equal(t, concurrency.LevelKey, level("a"), "the total is full, and no request waits for it")
	require.Zero(t, reads.Hits())
	w := ask(t, ctx, lim.Key("c"))
	waitsInTotal(t, ctx, lim, 1)
	hits := reads.Hits() // of Status
	require.Equal(t, concurrency.LevelTotal, level("c"))
	require.Greater(t, reads.Hits(), hits)
	require.NoError(t, a.Release(ctx))
	for _, p := range []*concurrency.Permit{b, granted(t, w, "one is free")} {
		require.NoError(t, p.Release(ctx))
	}
}

func errOf(p *concurrency.Permit, err error, ctx context.Context) error {
	if err != nil {
		return err
	}
	return p.Release(ctx)
}

// BenchmarkTrapN7Try is a try that is granted, and its release, beside so many requests of the total.
func BenchmarkTrapN7Try(b *testing.B) {
	for _, live := range []int{0, 200, 10_000} {
		b.Run(fmt.Sprintf("live=%d", live), func(b *testing.B) {
			f := shared(b)
			ctx := context.Background()
			s, _ := f.Session(idle())
			lim := totaled(b, s, "llm", 5, 20_000)
			f.crowded(ctx, lim, live)
			for b.Loop() {
				p, err := lim.Key("a").TryAcquire(ctx)
				require.NoError(b, errOf(p, err, ctx))
			}
		})
	}
}

// The ID of a try decides before the total does, which may be full of the request that has the ID.
func TestTryWithIDBeforeAFullTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 2, 1), totaled(t, other, "llm", 2, 1)
	p := acquire(t, ctx, there.Key("a"), concurrency.ID("flow"))
	_, err := here.Key("a").TryAcquire(ctx, concurrency.ID("flow"))
	require.ErrorIs(t, err, concurrency.ErrHeld)
	_, err = here.Key("a").TryAcquire(ctx, concurrency.ID("another"))
	require.ErrorIs(t, err, concurrency.ErrFull)
	q, err := here.Key("a").TryAcquire(ctx, concurrency.ID("flow"), concurrency.TakeOver())
	require.NoError(t, err)
	closed(t, p.Context().Done(), "it is evicted")
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrEvicted)
	require.NoError(t, q.Release(ctx))
	f.NoKeys("/queue/")
	f.NoKeys("/request-id/")
}

// Holders above a lowered total do not count as its waiters.
func TestMaxTotalWaitersOfALoweredTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim, err := concurrency.NewKeyedLimiter(s, "llm", 9, &concurrency.KeyedLimiterOptions{Total: 5, MaxTotalWaiters: 2})
	require.NoError(t, err)
	var permits []*concurrency.Permit
	for range 5 {
		permits = append(permits, acquire(t, ctx, lim.Key("a")))
	}
	require.NoError(t, lim.Total().SetLimit(ctx, 1))
	first := ask2(ctx, lim.Key("b"))
	waitsInTotal(t, ctx, lim, 1, first)
	second := ask2(ctx, lim.Key("b"))
	waitsInTotal(t, ctx, lim, 2, first, second)
	_, err = lim.Key("b").Acquire(ctx)
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, concurrency.FullError{Name: "llm", Limit: 1, Used: 5, Waiting: 2, Level: concurrency.LevelTotal, RetryAfter: full.RetryAfter}, *full)
	for _, p := range permits {
		require.NoError(t, p.Release(ctx))
	}
	require.NoError(t, granted(t, first, "all others are released").Release(ctx))
	require.NoError(t, granted(t, second, "the next").Release(ctx))
}

// A refusal of a call that etcd has not answered in time names the level as well.
func TestLevelOfAnUnseenQueue(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	lim := totaled(t, s, "llm", 1, 5)
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
	held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest})
	ch := ask2(ctx, lim.Key("a"), concurrency.Wait(time.Second/2))
	require.NoError(t, held.WaitHit(ctx))
	for another := sem(t, s, "another", 1); len(ch) == 0; time.Sleep(tick) {
		_, err := another.Status(ctx)
		require.NoError(t, err, "etcd answers, until the wait has passed")
	}
	var full *concurrency.FullError
	require.ErrorAs(t, got(t, ch, "its wait has passed").err, &full)
	require.Equal(t, []any{"llm/a", 1, 0, 0, concurrency.LevelKey}, []any{full.Name, full.Limit, full.Used, full.Waiting, full.Level})
	require.ErrorContains(t, full, "etcd has not shown the queue in time")
	require.NoError(t, held.Release())
	f.NoKeys("/queue/")
}
