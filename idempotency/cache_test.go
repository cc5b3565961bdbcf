package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// An outcome in the cache does not outlast its session, nor the caller's ctx, and is replayed for
// its own payloads only, by the present secret or by an old one.
func TestCacheIsNoWayAround(t *testing.T) {
	t.Parallel()
	f := shared(t)
	secret := []byte("0123456789abcdef0123456789abcdef")
	first := f.instance(nil, &idempotency.Options{Secret: secret})
	a := f.instance(nil, &idempotency.Options{Secret: []byte("another, for a fleet that rotates"), OldSecrets: [][]byte{secret}})
	also := idempotency.AlsoCompare("also")
	require.NoError(t, begin(t, first, key("1"), also).Commit(ctxT(t), []byte("x")))
	for range 2 { // read, and then from the cache
		for _, opts := range [][]idempotency.Option{{also}, nil} {
			_, rec, err := a.Begin(ctxT(t), key("1"), "payload", opts...)
			require.NoError(t, err)
			require.Equal(t, "x", string(rec.Value))
		}
		_, _, err := a.Begin(ctxT(t), key("1"), "payload", idempotency.AlsoCompare("other"))
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		_, _, err = a.Begin(ctxT(t), key("1"), "another", also)
		require.ErrorIs(t, err, idempotency.ErrMismatch)
	}
	require.EqualValues(t, 1, a.Stats().Read, "all others from the cache")
	ended, cancel := context.WithCancel(ctxT(t))
	cancel()
	_, rec, err := a.Begin(ended, key("1"), "payload")
	require.Nil(t, rec)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, a.sess.Close(ctxT(t)))
	_, rec, err = a.Begin(ctxT(t), key("1"), "payload")
	require.Nil(t, rec)
	require.ErrorIs(t, err, idempotency.ErrClosed)
}

// A replay from the cache prepares nothing that only other calls need. It runs beside no other
// test, since allocations are counted for the whole process.
func TestAllocationsOfAReplay(t *testing.T) {
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{CacheFor: time.Hour})
	k, value := key("1"), []byte("result")
	do := func() (idempotency.Result[[]byte], error) {
		return idempotency.Do(t.Context(), a.Store, k, "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return value, nil })
	}
	_, err := do()
	require.NoError(t, err)
	// The session and etcd, in this process, allocate from time to time.
	allocations := testing.AllocsPerRun(2000, func() {
		if res, err := do(); err != nil || string(res.Value) != string(value) {
			t.Fatal(res, err)
		}
	})
	require.Less(t, allocations, 13.0)
}
