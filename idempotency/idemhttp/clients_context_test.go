package idemhttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// V5: behind the Middlewares of two stores, Client ended with the outer attempt in place of the client, so never.
func TestClientBehindTwoStores(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	other, err := idempotency.NewStore(in.sess, "other", &idempotency.Options{SingleTenant: true})
	require.NoError(t, err)
	inner, err := idemhttp.Middleware(other, nil)
	require.NoError(t, err)
	begun, gone := make(chan struct{}), make(chan error, 1)
	s := in.hosting(new(atomic.Int64), in.middleware(nil)(inner(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		client := idemhttp.Client(r.Context())
		select {
		case <-client.Done():
			gone <- context.Cause(client)
		case <-r.Context().Done():
		}
	}))))
	ctx, leave := context.WithCancel(ctxT(t))
	r := s.request("/", "k", "").WithContext(ctx)
	go func() { _, _ = s.send(r) }()
	got(t, begun, "a begin")
	leave()
	require.ErrorIs(t, got(t, gone, "the end of Client"), context.Canceled)
}

// V6: a call with Client's context had a random key in each attempt, and charged in each. It has the attempt's key,
// that of its step, and the one that its caller has given to it.
func TestCallsWithTheClientsContext(t *testing.T) {
	t.Parallel()
	p := &provider{}
	send := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pay.test/charge", strings.NewReader("100"))
		require.NoError(t, err)
		resp, err := (&idemhttp.Transport{Base: p}).RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	through := func(id func(context.Context) context.Context) (keys []string) {
		p.keys = nil
		s := shared(t).instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
			a, _ := idempotency.FromContext(r.Context())
			send(id(r.Context()))
			_, err := idempotency.Step(a, "fee", func(ctx context.Context) (int, error) {
				send(id(ctx))
				return 0, errors.New("it runs again")
			})
			require.Error(t, err)
			send(id(idemhttp.WithKey(r.Context(), "mine")))
			if a.Attempt() == 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		require.Equal(t, http.StatusBadGateway, s.post("/", "k", "").StatusCode)
		require.Equal(t, http.StatusOK, s.post("/", "k", "").StatusCode)
		return p.keys
	}
	keys := through(idemhttp.Client)
	require.Len(t, keys, 6)
	require.Equal(t, keys[:3], keys[3:], "in both attempts")
	require.NotEqual(t, keys[0], keys[1], "of the step")
	require.Equal(t, `"mine"`, keys[2])
}

// Client's context ends with the attempt's, and reports the cause.
func TestClientsContextEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	after := make(chan context.Context, 1)
	s := in.serve(nil, func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, idemhttp.Client(r.Context()).Err())
		after <- idemhttp.Client(r.Context())
	})
	s.post("/", "k", "")
	ctx := got(t, after, "a context")
	<-ctx.Done()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.Error(t, context.Cause(ctx))
}
