package idemhttp_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// TestLostPermitOfAHandler: a permit that is lost ends the context of the handler, with its loss as the cause, in either order
// of the two middlewares, also once the client has left (A326 in internal/proof/tested-failures.md): with the limit in front
// the handler ran on beside the one that had the permit next. The handler's failure leaves the attempt as lost.
func TestLostPermitOfAHandler(t *testing.T) {
	t.Parallel()
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		for _, order := range []string{"limit in front", "limit behind"} {
			for _, leaves := range []bool{false, true} {
				name := policy + ", " + order
				if leaves {
					name += ", the client leaves"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: onLost})
					lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
					require.NoError(t, err)
					limit, err := limithttp.Middleware(lim, limithttp.Options{
						Key: func(*http.Request) (string, bool) { return "acme", true }, Wait: time.Minute,
					})
					require.NoError(t, err)
					once := in.middleware(&idemhttp.Options{Wait: time.Minute})
					begun, causes := make(chan context.Context, 1), make(chan error, 1)
					over := make(chan struct{})
					defer close(over)
					var calls atomic.Int64
					h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if calls.Add(1) > 1 {
							w.WriteHeader(http.StatusCreated)
							return
						}
						begun <- r.Context()
						ends(r, over)
						causes <- context.Cause(r.Context())
						w.WriteHeader(http.StatusServiceUnavailable)
					}))
					if order == "limit in front" {
						h = limit(once(h))
					} else {
						h = once(limit(h))
					}
					s := in.hosting(&calls, h)
					ctx, leave := context.WithCancel(ctxT(t))
					defer leave()
					go func() { _, _ = s.send(s.request("/pay", "k", "body").WithContext(ctx)) }()
					work := got(t, begun, "a handler")
					if leaves {
						leave()
						<-idemhttp.Client(work).Done()
					}
					p, ok := limithttp.FromContext(work)
					require.True(t, ok)
					require.NoError(t, lim.Key("acme").EvictToken(ctxT(t), p.Token(), "test"))
					var lost *concurrency.LostError
					require.ErrorAs(t, got(t, causes, "the end of the handler"), &lost)
					require.ErrorIs(t, lost, concurrency.ErrEvicted)
					re := s.post("/pay", "k", "body")
					if onLost == idempotency.Refuse {
						require.Equal(t, idemhttp.CodeUnknown, re.problem(t).Code)
						return
					}
					require.Equal(t, http.StatusCreated, re.StatusCode, re.body)
					require.EqualValues(t, 2, calls.Load())
				})
			}
		}
	}
}

// TestLostOuterPermitOfAHandler: of two limits in front, the outer one's permit is lost when the client has left: the handler's
// context ends with that (A381 in internal/proof/tested-failures.md). Only the inner one's was watched then.
func TestLostOuterPermitOfAHandler(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	limit := func(name string) (*concurrency.KeyedLimiter, func(http.Handler) http.Handler) {
		lim, err := concurrency.NewKeyedLimiter(in.sess, name, 1, nil)
		require.NoError(t, err)
		limited, err := limithttp.Middleware(lim, limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }})
		require.NoError(t, err)
		return lim, limited
	}
	outer, tenants := limit("tenants")
	_, routes := limit("routes")
	var calls atomic.Int64
	begun, causes := make(chan context.Context, 1), make(chan error, 1)
	over := make(chan struct{})
	defer close(over)
	var token int64
	s := in.hosting(&calls, tenants(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := limithttp.FromContext(r.Context())
		token = p.Token()
		routes(in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun <- r.Context()
			ends(r, over)
			causes <- context.Cause(r.Context())
		}))).ServeHTTP(w, r)
	})))
	ctx, leave := context.WithCancel(ctxT(t))
	defer leave()
	go func() { _, _ = s.send(s.request("/pay", "k", "body").WithContext(ctx)) }()
	work := got(t, begun, "a handler")
	leave()
	<-idemhttp.Client(work).Done()
	require.NoError(t, outer.Key("acme").EvictToken(ctxT(t), token, "test"))
	var lost *concurrency.LostError
	require.ErrorAs(t, got(t, causes, "the end of the handler"), &lost)
	require.ErrorIs(t, lost, concurrency.ErrEvicted)
	require.Equal(t, token, lost.Token)
}

// TestSuccessUnderALostPermit: what a handler has done when its permit was lost is recorded, and sent.
func TestSuccessUnderALostPermit(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
	require.NoError(t, err)
	limit, err := limithttp.Middleware(lim, limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }})
	require.NoError(t, err)
	over := make(chan struct{})
	defer close(over)
	var calls atomic.Int64
	s := in.hosting(&calls, limit(in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		p, _ := limithttp.FromContext(r.Context())
		if err := lim.Key("acme").EvictToken(ctxT(t), p.Token(), "test"); err != nil {
			t.Error(err)
		}
		ends(r, over)
		paid(w, r)
	}))))
	require.Equal(t, http.StatusCreated, got(t, s.later("/pay", "k", "body"), "an answer").StatusCode)
	require.True(t, s.post("/pay", "k", "body").replayed())
	require.EqualValues(t, 1, calls.Load())
}

// ends waits for the end of a request's context, or of the test.
func ends(r *http.Request, over <-chan struct{}) {
	select {
	case <-r.Context().Done():
	case <-over:
	}
}
