package limithttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestPatternOfAMuxBehind: in front of the middleware a request has the pattern by which a mux behind it has matched, as
// without the middleware (A328 in internal/proof/tested-failures.md): logs had none. It has it after a panic as well.
func TestPatternOfAMuxBehind(t *testing.T) {
	t.Parallel()
	free := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panics", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	h := stubbed(t, Options{}, free, mux.ServeHTTP)
	for _, c := range []struct{ path, front, want string }{
		{"/orders/7", "", "GET /orders/{id}"},
		{"/orders/7", "/", "GET /orders/{id}"},
		{"/panics", "", "GET /panics"},
		{"/none", "/", "/"},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Pattern = c.front
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		require.Equal(t, c.want, r.Pattern, c.path)
	}
}
