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

// ownLimiter is a Limiter of the caller's own that has no semaphore.
type ownLimiter struct{}

func (ownLimiter) Key(string) *concurrency.Semaphore { return nil }
func (ownLimiter) Total() *concurrency.Semaphore     { return nil }

// TestLimiterWithoutSemaphore: a Limiter that returns nil is an error of the program, for a handler, an
// outgoing call and any function.
func TestLimiterWithoutSemaphore(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Tenant", "acme")
	middleware(t, ownLimiter{}, options())(http.HandlerFunc(ok)).ServeHTTP(w, r)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	rt, err := limithttp.Transport(ownLimiter{}, options(), nil)
	require.NoError(t, err)
	_, err = rt.RoundTrip(r)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.ErrorContains(t, err, "acquire: the semaphore is nil (Limiter.Key)")
	call := concurrency.Limit(ownLimiter{}, func(string) string { return "acme" }, func(context.Context, string) (int, error) { return 0, nil })
	_, err = call(t.Context(), "")
	require.ErrorIs(t, err, concurrency.ErrInvalid)
}

// byName is a Limiter of the caller's own: a semaphore for each key.
type byName map[string]*concurrency.Semaphore

func (b byName) Key(key string) *concurrency.Semaphore { return b[key] }

// TestLimiterOfSemaphores: with a Limiter that returns semaphores of NewSemaphore, requests have their
// permits in their contexts, none asks its own semaphore again, and a hijacked connection keeps its
// permit.
func TestLimiterOfSemaphores(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	ws, err := concurrency.NewSemaphore(in.sess, "ws", 1, nil)
	require.NoError(t, err)
	quick, err := concurrency.NewSemaphore(in.sess, "quick", 1, nil)
	require.NoError(t, err)
	lim := byName{"ws": ws, "quick": quick}
	call := concurrency.Limit(lim, func(key string) string { return key }, func(ctx context.Context, _ string) (bool, error) {
		_, permitted := concurrency.FromContext(ctx)
		return permitted, nil
	}, concurrency.Wait(0))
	conns := make(chan func(), 1)
	s := in.serve(options(func(o *limithttp.Options) {
		o.Key = func(*http.Request) (string, bool) { return "", false }
	}), middleware(t, lim, options(func(o *limithttp.Options) {
		o.Key = func(r *http.Request) (string, bool) { return r.URL.Path[1:], true }
	}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			conn, _ := upgrade(t, w)
			conns <- func() { conn.Close() }
			return
		}
		p, permitted := limithttp.FromContext(r.Context())
		require.True(t, permitted)
		require.NoError(t, p.Err())
		_, err := call(r.Context(), "quick")
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		permitted, err = call(r.Context(), "ws")
		require.NoError(t, err, "another Limiter")
		require.True(t, permitted)
		ok(w, r)
	})).ServeHTTP)
	get := func(path string) int {
		r := s.request(ctxT(t), http.MethodGet, "", nil)
		r.URL.Path = path
		return s.send(r).StatusCode
	}
	require.Equal(t, http.StatusOK, get("/quick"))
	s.dial()
	hangUp := <-conns
	_, err = ws.TryAcquire(ctxT(t))
	require.ErrorIs(t, err, concurrency.ErrFull, "the connection is open")
	hangUp()
	p, err := ws.Acquire(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctxT(t)))
}
