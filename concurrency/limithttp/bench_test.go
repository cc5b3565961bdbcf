package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
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
