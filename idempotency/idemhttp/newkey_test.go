package idemhttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Within an attempt, WithNewKey gave a random key, so the attempt that took over charged a second time (A231 in
// internal/proof/tested-failures.md); and before it, one key to all that the function sent. The keys are derived there. As
// outside of attempts, equal requests of one context have one key, and those of two have two.
func TestNewKeyWithinAnAttempt(t *testing.T) {
	t.Parallel()
	in, p := shared(t).instance(nil, nil), &provider{}
	send := func(ctx context.Context, body string) string {
		p.keys = nil
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pay.test/charge", strings.NewReader(body))
		require.NoError(t, err)
		resp, err := (&idemhttp.Transport{Base: p}).RoundTrip(r)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		require.Len(t, p.keys, 1)
		return p.keys[0]
	}
	before := idemhttp.WithNewKey(ctxT(t))
	random, ok := idemhttp.KeyOf(before)
	require.True(t, ok)
	attempt := func() (keys []string, a *idempotency.Attempt) {
		a, _, err := in.Begin(before, idempotency.Key{Op: "pay", ID: "k"}, nil)
		require.NoError(t, err)
		_, ok := idemhttp.KeyOf(a.Context())
		require.False(t, ok)
		one, two := idemhttp.WithNewKey(a.Context()), idemhttp.WithNewKey(a.Context())
		inStep := ""
		_, err = idempotency.Step(a, "step", func(ctx context.Context) (int, error) {
			inStep = send(idemhttp.WithNewKey(ctx), "100")
			return 0, nil
		})
		require.NoError(t, err)
		keys = []string{send(a.Context(), "100"), send(a.Context(), "100"), send(a.Context(), "200"), send(one, "100"), send(two, "100"), send(one, "200"), inStep}
		require.Equal(t, keys[3], send(one, "100"), "it is the same request")
		require.Equal(t, keys[4], send(two, "100"))
		require.Equal(t, `"mine"`, send(idemhttp.WithKey(one, "mine"), "100"))
		return keys, a
	}
	first, a := attempt()
	all := map[string]bool{`"` + random + `"`: true}
	for _, k := range first {
		all[k] = true
	}
	require.Len(t, all, 1+len(first))
	require.NoError(t, a.Abandon(ctxT(t)))

	second, a := attempt()
	require.Equal(t, 2, a.Attempt())
	require.Equal(t, first[:6], second[:6], "the step does not run again")
	inner, _, err := in.Begin(idemhttp.WithNewKey(a.Context()), idempotency.Key{Op: "pay", ID: "inner"}, nil)
	require.NoError(t, err)
	require.NotEqual(t, send(inner.Context(), "100"), send(inner.Context(), "100"), "a context from outside of the attempt has no effect")
	require.NoError(t, inner.Release(ctxT(t)))
	require.NoError(t, a.Release(ctxT(t)))
}
