package idempotency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// I33: the calls of an attempt have the same keys in the next one, whatever other calls it makes;
// equal calls have one each; a call that is retried keeps its own.
func TestCallKeys(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	_, _, ok := idempotency.CallKey(t.Context(), "charge 1")
	require.False(t, ok, "there is no attempt")
	callKey := func(ctx context.Context, text string) string {
		key, _, ok := idempotency.CallKey(ctx, text)
		require.True(t, ok)
		return key
	}
	at := begin(t, a, key("1"))
	first, second, other := callKey(at.Context(), "charge 1"), callKey(at.Context(), "charge 1"), callKey(at.Context(), "charge 2")
	inStep := map[string]string{}
	for _, name := range []string{"one", "two"} {
		_, err := idempotency.Step(at, name, func(ctx context.Context) (int, error) {
			inStep[name] = callKey(ctx, "charge 1")
			return 1, nil
		})
		require.NoError(t, err)
	}
	all := map[string]bool{first: true, second: true, other: true, inStep["one"]: true, inStep["two"]: true}
	require.Len(t, all, 5)
	require.NoError(t, at.Abandon(ctxT(t)))

	// The next attempt, elsewhere: what was done and is left out moves no other call.
	at = begin(t, b, key("1"))
	require.Equal(t, 2, at.Attempt())
	require.Equal(t, other, callKey(at.Context(), "charge 2"))
	require.Equal(t, first, callKey(at.Context(), "charge 1"))
	_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { t.Error("it was recorded"); return 0, nil })
	require.NoError(t, err)
	var tried []string
	for range 2 { // a step that fails and runs again begins anew
		_, err = idempotency.Step(at, "three", func(ctx context.Context) (int, error) {
			require.NotContains(t, all, callKey(ctx, "charge 1"))
			tried = append(tried, callKey(ctx, "charge 3"))
			return 0, context.Canceled
		})
		require.Error(t, err)
	}
	require.Equal(t, tried[0], tried[1])
	require.Equal(t, second, callKey(at.Context(), "charge 1"))

	// An attempt that is begun within a step of another has its own.
	var within string
	_, err = idempotency.Step(at, "four", func(ctx context.Context) (int, error) {
		inner, _, err := b.Begin(ctx, key("3"), "payload")
		require.NoError(t, err)
		within = callKey(inner.Context(), "charge 1")
		return 4, inner.Abandon(ctxT(t))
	})
	require.NoError(t, err)
	outside := begin(t, b, key("3"))
	require.Equal(t, callKey(outside.Context(), "charge 1"), within)
	require.NoError(t, outside.Release(ctxT(t)))

	// Tried again it is the same call, but not one that continues beside it.
	failed, retry, _ := idempotency.CallKey(at.Context(), "charge 4")
	beside := callKey(at.Context(), "charge 4")
	require.NotEqual(t, failed, beside)
	retry()
	require.Equal(t, failed, callKey(at.Context(), "charge 4"))
	retry() // once is enough
	require.NotContains(t, []string{failed, beside}, callKey(at.Context(), "charge 4"))
	require.NoError(t, at.Commit(ctxT(t), nil))

	at = begin(t, b, key("2"))
	require.NotContains(t, all, callKey(at.Context(), "charge 1"), "another request")
	var mu sync.Mutex
	var wg sync.WaitGroup
	keys := map[string]bool{}
	for range 50 {
		wg.Go(func() {
			key, _, _ := idempotency.CallKey(at.Context(), "at once")
			mu.Lock()
			defer mu.Unlock()
			keys[key] = true
		})
	}
	wg.Wait()
	require.Len(t, keys, 50)
	require.NoError(t, at.Release(ctxT(t)))
}
