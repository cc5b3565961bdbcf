package idemhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// TestPatternOfAMuxBehind: in front of the Middleware a request has the pattern by which a mux behind it has matched (A328
// in internal/proof/tested-failures.md): logs had none. That of a mux in front stays: ByPattern knows the request by it, also
// if a layer between the two sends the request on a second time.
func TestPatternOfAMuxBehind(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	calls := 0
	behind := http.NewServeMux()
	behind.HandleFunc("POST /orders/{id}", func(http.ResponseWriter, *http.Request) { calls++ })
	request := func(key string) *http.Request {
		r := httptest.NewRequestWithContext(ctxT(t), http.MethodPost, "/orders/7", strings.NewReader(""))
		r.Header.Set("Idempotency-Key", key)
		return r
	}
	r := request("a")
	in.middleware(nil)(behind).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "POST /orders/{id}", r.Pattern)

	once := in.middleware(&idemhttp.Options{Op: idemhttp.ByPattern})(behind)
	front := http.NewServeMux()
	front.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for range 2 {
			once.ServeHTTP(w, r)
			require.Equal(t, "/", r.Pattern)
		}
	})
	front.ServeHTTP(httptest.NewRecorder(), request("b"))
	require.Equal(t, 2, calls)
}
