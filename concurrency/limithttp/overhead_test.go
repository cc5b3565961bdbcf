package limithttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/etcdkit/etcdkit/concurrency"
)

// sink is a ResponseWriter that costs nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkOverhead is what the middleware costs besides its permit: the bare handler, the
// middleware with a permit that costs nothing, and a request that is not limited.
func BenchmarkOverhead(b *testing.B) {
	free := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	handler := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	for _, c := range []struct {
		name string
		h    http.Handler
	}{
		{"bare", http.HandlerFunc(handler)},
		{"limited", stubbed(b, Options{}, free, handler)},
		{"unlimited", stubbed(b, Options{Key: func(*http.Request) (string, bool) { return "", false }}, free, handler)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), &sink{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				c.h.ServeHTTP(w, r)
			}
		})
	}
}
