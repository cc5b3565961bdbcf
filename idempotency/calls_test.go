package idempotency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/retries"
)

// I33: the calls of an attempt have the same keys in the next one, whatever other calls it makes;
// equal calls have one each; a call that is retried keeps its own.
func TestCallKeys(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	none, _, err := idempotency.CallKey(t.Context(), "charge 1", nil)
	require.NoError(t, err)
	require.Empty(t, none, "there is no attempt")
	callKey := func(ctx context.Context, text string) string {
		key, _, err := idempotency.CallKey(ctx, text, nil)
		require.NoError(t, err)
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
	_, err = idempotency.Step(at, "one", func(context.Context) (int, error) { t.Error("it was recorded"); return 0, nil })
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
	failed, retry, _ := idempotency.CallKey(at.Context(), "charge 4", nil)
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
			key, _, _ := idempotency.CallKey(at.Context(), "at once", nil)
			mu.Lock()
			defer mu.Unlock()
			keys[key] = true
		})
	}
	wg.Wait()
	require.Len(t, keys, 50)
	require.NoError(t, at.Release(ctxT(t)))
}

// V9: a call that differs from an earlier one of the attempt only in what its text does not have, such as the account, has
// no key, neither beside it nor after its failure: in the next attempt the two could swap their keys.
func TestCallsApart(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	at := begin(t, in, key("1"))
	type apart = map[string]string
	first, retry, err := idempotency.CallKey(at.Context(), "charge", apart{"account": "A", "trace": "1"})
	require.NoError(t, err)
	for _, other := range []apart{{"account": "B", "trace": "2"}, nil} {
		_, _, err = idempotency.CallKey(at.Context(), "charge", other)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "only in account, trace")
		retry()
	}
	again, _, err := idempotency.CallKey(at.Context(), "charge", apart{"account": "A", "trace": "1"})
	require.NoError(t, err)
	require.Equal(t, first, again, "a refused call takes no position")
	_, _, err = idempotency.CallKey(at.Context(), "another charge", apart{"account": "B"})
	require.NoError(t, err)
	require.NoError(t, at.Abandon(ctxT(t)))

	at = begin(t, in, key("1"))
	later, _, err := idempotency.CallKey(at.Context(), "charge", apart{"account": "A", "trace": "2"})
	require.NoError(t, err)
	require.Equal(t, first, later, "what is apart is no part of the key")
	require.NoError(t, at.Release(ctxT(t)))
}

// Calls of one marked context, as WithNewKey of the clients makes it, are one call and its repetitions (A231 in
// internal/proof/tested-failures.md): while one of them is not over, they keep their position among equal calls.
func TestCallsOfAMarkedContext(t *testing.T) {
	t.Parallel()
	a := begin(t, shared(t).instance(nil, nil), key("1"))
	call := func(ctx context.Context) (string, func()) {
		key, retry, err := idempotency.CallKey(ctx, "charge", nil)
		require.NoError(t, err)
		return key, retry
	}
	one, two := retries.With(a.Context(), new(int)), retries.With(a.Context(), new(int))
	first, failed := call(one)
	hedge, hedgeFailed := call(one)
	require.Equal(t, first, hedge)
	other, otherFailed := call(two)
	require.NotEqual(t, first, other)
	failed()
	failed()
	plain, _ := call(a.Context())
	require.NotContains(t, []string{first, other}, plain, "the other request may have arrived")
	again, againFailed := call(one)
	require.Equal(t, first, again)
	otherFailed()
	hedgeFailed()
	againFailed()
	free, _ := call(a.Context())
	require.Equal(t, first, free, "it is a retry of a call that has failed")
	again, _ = call(one)
	require.Equal(t, other, again, "the first position that is free")

	three, four := retries.With(a.Context(), new(int)), retries.With(a.Context(), new(int))
	third, thirdFailed := call(three)
	fourth, fourthFailed := call(four)
	thirdFailed()
	fourthFailed()
	again, _ = call(four)
	require.Equal(t, fourth, again, "it keeps its position after a failure, although an earlier one is free")
	again, _ = call(three)
	require.Equal(t, third, again)
	require.NoError(t, a.Release(ctxT(t)))
}

// A702: work that outlives its attempt stayed under the rules for its calls: after a renewed token, an equal call was
// ErrInvalid for ever. Once an outcome is recorded, such calls have keys of their own; one that is made again keeps its key,
// also from before. After a release or an abandonment, another attempt makes the calls, and nothing changes.
func TestCallsAfterTheOutcome(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	type apart = map[string]string
	for name, c := range map[string]struct {
		ends func(a *idempotency.Attempt) error
		own  bool
	}{
		"commit":  {func(a *idempotency.Attempt) error { return a.Commit(ctxT(t), nil) }, true},
		"fail":    {func(a *idempotency.Attempt) error { return a.Fail(ctxT(t), "declined", nil) }, true},
		"abandon": {func(a *idempotency.Attempt) error { return a.Abandon(ctxT(t)) }, false},
		"release": {func(a *idempotency.Attempt) error { return a.Release(ctxT(t)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := begin(t, in, key(name))
			call := func(ctx context.Context, token string) (string, func()) {
				key, retry, err := idempotency.CallKey(ctx, "charge", apart{"token": token})
				require.NoError(t, err)
				return key, retry
			}
			marked := retries.With(a.Context(), new(int))
			one, _ := call(a.Context(), "A")
			two, twoFailed := call(a.Context(), "A")
			three, threeFailed := call(a.Context(), "A")
			four, fourFailed := call(marked, "A")
			twoFailed()
			require.NoError(t, c.ends(a))
			if !c.own {
				again, _ := call(a.Context(), "A")
				require.Equal(t, two, again)
				_, _, err := idempotency.CallKey(a.Context(), "charge", apart{"token": "B"})
				require.ErrorIs(t, err, idempotency.ErrInvalid)
				return
			}
			renewed, renewedFailed := call(a.Context(), "B")
			beside, _ := call(a.Context(), "B")
			again, _ := call(a.Context(), "A")
			require.Equal(t, two, again, "it had failed before")
			threeFailed()
			again, _ = call(a.Context(), "A")
			require.Equal(t, three, again, "it has failed since")
			fourFailed()
			again, _ = call(marked, "A")
			require.Equal(t, four, again, "its context has a mark")
			last, _ := call(a.Context(), "A")
			renewedFailed()
			renewedFailed()
			again, _ = call(a.Context(), "B")
			require.Equal(t, renewed, again)
			next, _ := call(a.Context(), "B")
			require.Len(t, map[string]bool{one: true, two: true, three: true, four: true, renewed: true, beside: true, last: true, next: true}, 8)
		})
	}
}
