package concurrency_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Operators see which limiters there are, and which of their keys are in use or have a limit of their
// own.
func TestKeysOfLimiters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim, plain := totaled(t, s, "llm", 2, 3), keyed(t, s, "a/b"[:1], 1)
	other, _ := f.Session(idle())
	operator, err := concurrency.NewKeyedLimiter(other, "llm", 0, &concurrency.KeyedLimiterOptions{AdoptLimit: true})
	require.NoError(t, err)
	limiters := func() (found []concurrency.QueueInfo) {
		for q, err := range other.Queues(ctx) {
			require.NoError(t, err)
			if q.Kind == concurrency.KindLimiter {
				found = append(found, q)
			}
		}
		return found
	}
	keys := func() (found []concurrency.KeyInfo) {
		for k, err := range operator.Keys(ctx) {
			require.NoError(t, err)
			found = append(found, k)
		}
		return found
	}
	require.Empty(t, limiters())
	require.Empty(t, keys())
	require.NoError(t, acquire(t, ctx, plain.Key("x")).Release(ctx))
	acquire(t, ctx, lim.Key("b"), concurrency.ID("i"))
	acquire(t, ctx, lim.Key("b"))
	ask(t, ctx, lim.Key("b")) // at its key
	acquire(t, ctx, lim.Key("a/é"))
	ask(t, ctx, lim.Key("heavy"), concurrency.Weight(2)) // for the total
	require.NoError(t, acquire(t, ctx, sem(t, s, "llm", 1)).Release(ctx))
	require.NoError(t, lim.Key("b").SetLimit(ctx, 2))
	require.NoError(t, lim.Key("paused").SetLimit(ctx, 0))
	require.NoError(t, lim.Key("cleared").SetLimit(ctx, 7))
	require.NoError(t, lim.ClearLimit(ctx, "cleared"))
	at, _, _ := strings.Cut(f.Keys("/key/paused/limit")[0], "paused")
	for _, foreign := range []string{at + "damaged/limit", at + "%zz/limit", at + "x", at + "b/queue/light/x"} {
		_, err := f.Client().Put(ctx, foreign, "")
		require.NoError(t, err)
	}
	want := []concurrency.KeyInfo{
		{Key: "a/é", Requests: 1}, {Key: "b", Stored: true, Limit: 2, Requests: 3},
		{Key: "damaged", Unreadable: record.Why(at+"damaged/limit", nil)}, {Key: "heavy", Requests: 1}, {Key: "paused", Stored: true},
	}
	require.Equal(t, want, keys())
	require.Equal(t, []concurrency.QueueInfo{
		{Kind: concurrency.KindLimiter, Name: "a", Stored: true},
		{Kind: concurrency.KindLimiter, Name: "llm", Stored: true, Requests: 5},
	}, limiters())

	for from := 0; from < 1200; from += 100 { // more than two pages
		var puts []clientv3.Op
		for n := from; n < from+100; n++ {
			puts = append(puts, clientv3.OpPut(at+fmt.Sprintf("many/queue/light/%016x-%04x", int64(s.Lease()), n), "", clientv3.WithLease(s.Lease())))
		}
		_, err := f.Client().Txn(ctx).Then(puts...).Commit()
		require.NoError(t, err)
	}
	want = append(want[:4:4], concurrency.KeyInfo{Key: "many", Requests: 1200}, want[4])
	require.Equal(t, want, keys())
	require.Equal(t, 1205, limiters()[1].Requests)
	for k, err := range operator.Keys(ctx) {
		require.NoError(t, err)
		require.Equal(t, "a/é", k.Key)
		break
	}
	require.NoError(t, other.Close(ctx))
	n := 0
	for _, err := range operator.Keys(ctx) {
		require.ErrorIs(t, err, concurrency.ErrClosed)
		n++
	}
	require.Equal(t, 1, n)
}
