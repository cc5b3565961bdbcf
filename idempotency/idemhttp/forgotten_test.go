package idemhttp_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A handler has answered with 502, when its provider may have charged. The key is for that body
// and that host all the same: another one is refused by 422, and the same one is tried again, with
// the same key for the provider.
func TestAnotherBodyAfterAFailure(t *testing.T) {
	t.Parallel()
	f := shared(t)
	var status atomic.Int64
	status.Store(http.StatusBadGateway)
	host := func(name string) with { return func(r *http.Request) { r.Host = name } }
	var keys sync.Map // the provider's
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		at, _ := idempotency.FromContext(r.Context())
		keys.Store(at.ChildKey("charge"), true)
		w.WriteHeader(int(status.Load()))
	})
	for range 2 {
		require.Equal(t, http.StatusBadGateway, s.post("/pay", "k", "100", host("pay.example")).StatusCode)
		require.Equal(t, idemhttp.CodeReused, s.post("/pay", "k", "99900", host("pay.example")).problem(t).Code)
		require.Equal(t, idemhttp.CodeReused, s.post("/pay", "k", "100", host("other.example")).problem(t).Code)
	}
	status.Store(http.StatusCreated)
	require.Equal(t, http.StatusCreated, s.post("/pay", "k", "100", host("pay.example")).StatusCode)
	require.True(t, s.post("/pay", "k", "100", host("pay.example")).replayed())
	asked := 0
	keys.Range(func(any, any) bool { asked++; return true })
	require.Equal(t, 1, asked)
}
