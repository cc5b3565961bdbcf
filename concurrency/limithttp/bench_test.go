package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// BenchmarkRequest is a request through the middleware on a real etcd, beside Semaphore.Do alone.
func BenchmarkRequest(b *testing.B) {
	in := newInstance(b, 10)
	h := middleware(b, in, options())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Run("Do alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, in.Key("acme").Do(b.Context(), func(context.Context, *concurrency.Permit) error { return nil }, concurrency.Wait(0)))
		}
	})
	b.Run("middleware", func(b *testing.B) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Tenant", "acme")
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
	})
}

// BenchmarkRated is a request under a rate alone, on a real etcd: one that gets a token and one that
// is refused, beside the bare handler.
func BenchmarkRated(b *testing.B) {
	in := newInstance(b, 10)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	most, err := concurrency.NewRateLimiter(in.sess, "most", concurrency.Rate{PerSecond: 1e6, Burst: 1e6}, nil)
	require.NoError(b, err)
	for name, h := range map[string]http.Handler{
		"bare":    handler,
		"runs":    middleware(b, nil, limithttp.Options{Rate: most, Wait: soon})(handler),
		"refused": middleware(b, nil, limithttp.Options{Rate: in.rate(scarce)})(handler),
	} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			h.ServeHTTP(httptest.NewRecorder(), r) // the first one acquires shares
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
