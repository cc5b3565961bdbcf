package concurrency_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Each level has its own order. Of two requests that are admitted at their key together, the one whose
// process reaches etcd first joins the total first, and no request waits for one that has not joined.
func TestOrderOfTheTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	slow, c := f.Session(idle())
	fast, _ := f.Session(idle())
	first, second := totaled(t, slow, "llm", 2, 2), totaled(t, fast, "llm", 2, 2)
	held := acquire(t, ctx, second.Key("a"), concurrency.Weight(2))
	w1 := ask(t, ctx, first.Key("a"))
	f.seesKey(ctx, first, "a")
	w2 := ask(t, ctx, second.Key("a"))
	st, err := second.Key("a").Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Waiters, 2)
	require.Less(t, st.Waiters[0].Token, st.Waiters[1].Token)
	joins := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	require.NoError(t, held.Release(ctx))
	p2 := granted(t, w2, "it has joined the total")
	require.NoError(t, joins.WaitHit(ctx))
	waiting(t, w1, "it has not joined the total")
	require.NoError(t, joins.Release())
	p1 := granted(t, w1, "it has joined")
	require.Greater(t, p1.Token(), p2.Token())
	require.NoError(t, p1.Release(ctx))
	require.NoError(t, p2.Release(ctx))
}

// A key whose limit was cleared keeps a record, which says that the default is in force; any other key
// without requests has nothing in etcd.
func TestClearedLimitLeavesARecord(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := keyed(t, s, "llm", 1)
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx))
	require.NoError(t, acquire(t, ctx, lim.Key("b")).Release(ctx))
	require.NoError(t, lim.Key("a").SetLimit(ctx, 2))
	require.NoError(t, lim.ClearLimit(ctx, "a"))
	keys := f.Keys("/key/")
	require.Len(t, keys, 1)
	require.True(t, strings.HasSuffix(keys[0], "/key/a/limit"), keys[0])
	st, err := lim.Key("a").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, st.Limit)
}

// A call with MaxWaiters keeps its place at its key if a limit changes while it joins the queue of the
// total.
func TestMaxWaitersKeepsItsPlace(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	here, there := totaled(t, s, "llm", 1, 5), totaled(t, other, "llm", 1, 5)
	p := acquire(t, ctx, there.Key("a"))
	first := ask(t, ctx, here.Key("a"), concurrency.MaxWaiters(1))
	second := ask(t, ctx, there.Key("a"))
	joins := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, Before: func() {
		assertNoError(t, there.SetDefault(ctx, 1))
	}})
	require.NoError(t, p.Release(ctx))
	require.NoError(t, joins.WaitHit(ctx))
	select {
	case a := <-first:
		require.NoError(t, a.err)
		waiting(t, second, "it came later")
		require.NoError(t, a.p.Release(ctx))
	case <-second:
		require.Fail(t, "the second is granted first")
	}
	require.NoError(t, granted(t, second, "the next").Release(ctx))
	f.NoKeys("/queue/")
}
