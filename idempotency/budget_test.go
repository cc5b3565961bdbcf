package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/cost"
)

// What each operation costs etcd. docs/storage.md has the rows.
func TestLoadBudget(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	quiet := &concurrency.SessionOptions{TTL: 300 * time.Second} // no renewal and no refresh while we count
	b := cost.New(ctx, t, f.Cluster)
	opts := &idempotency.Options{NearQuota: 2} // the look at the quota comes when it comes
	a, other := f.instance(quiet, opts), f.instance(quiet, opts)
	bounded := f.instance(quiet, &idempotency.Options{NearQuota: 2, MaxPerScope: 1000})
	b.Started(a.client, other.client, bounded.client)
	for _, in := range []instance{a, other, bounded} { // the leases
		k := key("warm" + in.sess.Owner())
		if in == bounded {
			k.Scope = "another" // so that no count is in use
		}
		require.NoError(t, begin(t, in, k).Commit(ctx, nil))
	}
	do := func(in instance, id string, fn func(*idempotency.Attempt) error, opts ...idempotency.Option) func() {
		return func() {
			t.Helper()
			_, err := idempotency.Do(ctx, in.Store, key(id), "payload", func(_ context.Context, at *idempotency.Attempt) (int, error) { return 1, fn(at) }, opts...)
			require.NoError(t, err)
		}
	}
	nothing := func(*idempotency.Attempt) error { return nil }
	type load = cost.Load
	b.Count("a new request, from claim to outcome", a.client, load{"Range": 1, "Txn": 2}, 2, 2, do(a, "1", nothing))
	b.Count("a new request, with `LikelyNew`", a.client, load{"Txn": 2}, 2, 2, do(a, "2", nothing, idempotency.LikelyNew()))
	b.Count("a new request, with `MaxPerScope`", bounded.client, load{"Range": 2, "Txn": 2}, 2, 2, do(bounded, "bounded", nothing))
	b.Count("a new request with one recovery point", a.client, load{"Range": 1, "Txn": 3}, 3, 3, do(a, "3", func(at *idempotency.Attempt) error {
		_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
		return err
	}))
	b.Count("a replay from etcd", other.client, load{"Range": 1}, 0, 0, do(other, "1", nothing))
	b.Count("a replay from the cache", other.client, load{}, 0, 0, do(other, "1", nothing))
	at := begin(t, a, key("busy"))
	b.Count("a duplicate of a request in progress, rejected", other.client, load{"Range": 1, "Txn": 1, "LeaseTimeToLive": 1}, 0, 0, func() { rejected(t, other, key("busy")) })
	b.Count("the same, in the process of the attempt", a.client, load{}, 0, 0, func() { rejected(t, a, key("busy")) })
	b.Count("one that waits in another process, for all its callers of that key, and 1 LeaseTimeToLive for each whose wait ends first", other.client, load{"Range": 1, "Txn": 2, "Watch.Send": 2, "LeaseTimeToLive": 1}, 0, 0, func() {
		_, _, err := other.Begin(ctx, key("busy"), "payload", idempotency.Wait(2*time.Second))
		require.ErrorIs(t, err, idempotency.ErrInProgress)
	})
	b.Count("`Release`", a.client, load{"Txn": 1}, 1, 1, func() { require.NoError(t, at.Release(ctx)) })
	at = begin(t, a, key("lost"))
	b.Count("`Abandon`", a.client, load{"Txn": 1}, 1, 1, func() { require.NoError(t, at.Abandon(ctx)) })
	b.Count("`Resolve` with `NotDone`, refused while the process of the attempt lives", other.client, load{"Range": 2}, 0, 0, func() {
		require.ErrorIs(t, other.Resolve(ctx, other.Ref(key("lost")), idempotency.NotDone()), idempotency.ErrAlive)
	})
	b.Count("`Resolve`, the first in a while", other.client, load{"Range": 1, "LeaseTimeToLive": 1, "LeaseGrant": 1, "Txn": 1}, 2, 1, func() {
		require.NoError(t, other.Resolve(ctx, other.Ref(key("lost")), idempotency.NotDone(), idempotency.EvenIfAlive()))
	})
	b.Count("`Delete`", other.client, load{"Range": 1, "Txn": 1}, 1, 1, func() { require.NoError(t, other.Delete(ctx, other.Ref(key("lost")))) })
	b.Count("`Get`, and `List` for each 32 keys", a.client, load{"Range": 1}, 0, 0, func() {
		_, _, err := a.Get(ctx, a.Ref(key("1")))
		require.NoError(t, err)
	})
	b.Count("`Get`, and `List` for each 32 keys", a.client, load{"Range": 1}, 0, 0, func() {
		for _, err := range a.List(ctx, idempotency.Filter{}) {
			require.NoError(t, err)
		}
	})
	b.CheckDoc("../docs/storage.md", "### Requests")
}
