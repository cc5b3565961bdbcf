package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// While the request of a paused key returns from the total to its key, its ID is free: a call that takes it then has it, and
// the first one returns a *HeldError.
func TestIDBetweenTheQueuesOfAPausedKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 5, 1)
	b := acquire(t, ctx, lim.Key("b"))
	first := ask(t, ctx, lim.Key("a"), concurrency.ID("a"))
	waitsInTotal(t, ctx, lim, 1)
	require.NoError(t, lim.Key("a").SetLimit(ctx, 0))

	asksAgain := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest})
	require.NoError(t, b.Release(ctx))
	require.NoError(t, asksAgain.WaitHit(ctx))
	second := ask(t, ctx, totaled(t, other, "llm", 5, 1).Key("a"), concurrency.ID("a"))
	require.NoError(t, asksAgain.Release())
	var held *concurrency.HeldError
	require.ErrorAs(t, got(t, first, "its ID is taken").err, &held)
	require.NoError(t, lim.Key("a").SetLimit(ctx, 5))
	require.NoError(t, granted(t, second, "the key is resumed").Release(ctx))
	f.NoKeys("/queue/")
}
