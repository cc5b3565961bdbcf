package idemhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A702: a worker that a handler has started posts on after the response. Its token is renewed meanwhile: each post is sent, with
// a key of its own, and one that is repeated in a context of WithNewKey keeps its key.
func TestWorkerThatOutlivesItsHandler(t *testing.T) {
	t.Parallel()
	keys := make(chan string, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		if r.Header.Get("Authorization") == "old" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(service.Close)
	ctxs := make(chan context.Context, 1)
	s := shared(t).instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		ctxs <- context.WithoutCancel(r.Context())
		paid(w, r)
	})
	require.Equal(t, http.StatusCreated, s.post("/", "k", "body").StatusCode)
	require.True(t, s.post("/", "k", "body").replayed())
	worker := <-ctxs
	client := &http.Client{Transport: &idemhttp.Transport{}}
	defer client.CloseIdleConnections()
	post := func(ctx context.Context, token string) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", token)
		resp, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return got(t, keys, "a post")
	}
	seen := map[string]bool{}
	for _, token := range []string{"a", "b", "b", "old"} {
		seen[post(worker, token)] = true
	}
	require.Len(t, seen, 4)
	anew := idemhttp.WithNewKey(worker)
	first := post(anew, "old")
	require.Equal(t, first, post(anew, "new"))
	require.False(t, seen[first])
}
