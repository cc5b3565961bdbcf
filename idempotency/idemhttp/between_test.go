package idemhttp_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A623: with Refuse a payment that a full limit had refused was unknown if an http.ServeMux was between the two middlewares,
// although no handler was called, and the answer said when to come back. With another handler between, which may
// have done something, it stays unknown: the answer says so, and the report says why and what to change.
func TestBetweenAMiddlewareAndALimit(t *testing.T) {
	t.Parallel()
	muxed := func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /{what}", h)
		mux.Handle("/", http.NotFoundHandler())
		return mux
	}
	logged := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) })
	}
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		for between, unknown := range map[string]bool{"a mux": false, "two muxes": false, "a mux and a limit": false, "a limit and a mux": false, "a logger": true, "a mux and a logger": true} {
			t.Run(policy+", "+between, func(t *testing.T) {
				t.Parallel()
				unknown := unknown && onLost == idempotency.Refuse
				in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: onLost})
				reported := make(chan error, 10)
				limited := func(name string, limit int) (*concurrency.KeyedLimiter, func(http.Handler) http.Handler) {
					lim, err := concurrency.NewKeyedLimiter(in.sess, name, limit, nil)
					require.NoError(t, err)
					mw, err := limithttp.Middleware(lim, limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }})
					require.NoError(t, err)
					return lim, mw
				}
				lim, mw := limited("tenants", 1)
				_, other := limited("models", 5)
				var calls atomic.Int64
				h := mw(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					calls.Add(1)
					w.WriteHeader(http.StatusCreated)
				}))
				once := in.middleware(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported <- err }})
				s := in.hosting(&calls, once(map[string]func() http.Handler{
					"a mux":              func() http.Handler { return muxed(h) },
					"two muxes":          func() http.Handler { return muxed(muxed(h)) },
					"a mux and a limit":  func() http.Handler { return muxed(other(h)) },
					"a limit and a mux":  func() http.Handler { return other(muxed(h)) },
					"a logger":           func() http.Handler { return logged(h) },
					"a mux and a logger": func() http.Handler { return muxed(logged(h)) },
				}[between]()))
				p, err := lim.Key("acme").Acquire(ctxT(t))
				require.NoError(t, err)
				first := s.post("/pay", "k", "body")
				require.NoError(t, p.Release(ctxT(t)))
				require.Equal(t, http.StatusTooManyRequests, first.StatusCode)
				require.Equal(t, unknown, first.Header.Get("Idempotency-Outcome") == "unknown")
				require.Equal(t, unknown, first.Header.Get("Retry-After") == "")
				again := s.post("/pay", "k", "body")
				if unknown {
					require.ErrorContains(t, got(t, reported, "why it is unknown"), "put the limit directly behind the Middleware")
					require.Equal(t, idemhttp.CodeUnknown, again.problem(t).Code)
					require.Zero(t, calls.Load())
					return
				}
				require.Equal(t, http.StatusCreated, again.StatusCode, again.body)
				require.True(t, s.post("/pay", "k", "body").replayed())
				require.EqualValues(t, 1, calls.Load())
				require.Empty(t, reported)
			})
		}
	}
}
