package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// No process replays an outcome from its cache after it has expired and the request has another one,
// whichever process has recorded or read it, by the store's retention or by that of the calls.
func TestCacheEndsWithRetention(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for retention: 6 s")
	}
	t.Parallel()
	f := shared(t)
	const kept = 4 * time.Second // and the lease longer by two: time enough to read it
	opts := func(retain time.Duration) *idempotency.Options {
		return &idempotency.Options{Retain: retain, CacheFor: time.Hour}
	}
	byStore, byCall := f.instance(nil, opts(kept)), f.instance(nil, opts(0))
	reader, next := f.instance(nil, opts(kept)), f.instance(nil, &idempotency.Options{CacheBytes: -1})
	replays := func(in instance, k idempotency.Key, want string) {
		t.Helper()
		_, rec, err := in.Begin(ctxT(t), k, "payload", idempotency.Retain(kept), idempotency.Wait(0))
		require.NoError(t, err)
		require.NotNil(t, rec)
		require.Equal(t, want, string(rec.Value))
	}
	all := []instance{byStore, byCall, reader}
	require.NoError(t, begin(t, byStore, key("1")).Commit(ctxT(t), []byte("first")))
	require.NoError(t, begin(t, byCall, key("2"), idempotency.Retain(kept)).Commit(ctxT(t), []byte("first")))
	for _, in := range all {
		for _, k := range []idempotency.Key{key("1"), key("2")} {
			replays(in, k, "first")
		}
	}
	f.NoKeys("/r/")
	for _, k := range []idempotency.Key{key("1"), key("2")} {
		require.NoError(t, begin(t, next, k).Commit(ctxT(t), []byte("second")))
		for _, in := range all {
			replays(in, k, "second")
		}
	}
}
