package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Limiters, semaphores, mutexes and rates of one name on one session are strangers, and so are keys
// whose texts look like parts of etcd's keys: the end of one takes nothing from another.
func TestOneNameOnOneSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim, again := totaled(t, s, "x", 1, 20), totaled(t, s, "x", 1, 20)
	other := keyed(t, s, "x.y", 1)
	keys := []string{"a", "a/", "a/queue/light", "..", "%61", "a\x00", "a\xff", "limit", "total", "key/a", " "}
	held := map[*concurrency.Permit]bool{}
	for i, key := range keys {
		use := lim
		if i%2 == 1 {
			use = again
		}
		held[acquire(t, ctx, use.Key(key), concurrency.ID(key))] = true
		held[acquire(t, ctx, other.Key(key), concurrency.ID(key))] = true
	}
	for _, sm := range []*concurrency.Semaphore{sem(t, s, "x", 1), sem(t, s, "limiter", 1), sem(t, s, "key", 1)} {
		held[acquire(t, ctx, sm, concurrency.ID("a"))] = true
	}
	mu, err := mutex(t, s, "x").Lock(ctx)
	require.NoError(t, err)
	held[mu] = true
	valid := func() {
		t.Helper()
		for p := range held {
			resp, err := f.Client().Txn(ctx).If(p.Guard()).Commit()
			require.NoError(t, err)
			require.True(t, resp.Succeeded)
		}
	}
	for p := range held {
		valid()
		delete(held, p)
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
	f.NoKeys("/request-id/")
	_, err = lim.Key("").Acquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
}
