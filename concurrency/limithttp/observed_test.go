package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

type (
	opKey     struct{}
	callerKey struct{}
	roundTrip func(*http.Request) (*http.Response, error)
)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestContextsOfHooks: a handler and an outgoing call have the values of the hold's hook, as a span has, and
// those of their own ctx.
func TestContextsOfHooks(t *testing.T) {
	t.Parallel()
	in := on(testkit.Shared(t), &concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: []observe.Hooks{{
		Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			return context.WithValue(ctx, opKey{}, c.Op), nil
		},
	}}}, 1)
	ctx := context.WithValue(ctxT(t), callerKey{}, "caller")
	seen := make(chan [2]any, 1)
	see := func(ctx context.Context) { seen <- [2]any{ctx.Value(opKey{}), ctx.Value(callerKey{})} }
	want := [2]any{observe.Hold, "caller"}

	client := in.calling(options(), roundTrip(func(r *http.Request) (*http.Response, error) {
		see(r.Context())
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	}))
	resp, err := client.Do(call(t, ctx, http.MethodGet, "http://example.com", "acme", nil))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, want, <-seen, "an outgoing call")

	h, err := limithttp.Middleware(in, options())
	require.NoError(t, err)
	handler := h(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { see(r.Context()) }))
	handler.ServeHTTP(httptest.NewRecorder(), call(t, ctx, http.MethodGet, "/", "acme", nil))
	require.Equal(t, want, <-seen, "a handler")
}
