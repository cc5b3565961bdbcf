package limithttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHealthChecksOfCalls: a health check of gRPC or Connect passes a full limit, as one behind limitgrpc (A477 in
// internal/proof/tested-failures.md). A request of plain HTTP at the same path does not.
func TestHealthChecksOfCalls(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(), ok)
	p, err := in.Key("acme").Acquire(ctxT(t))
	require.NoError(t, err)
	for kind, want := range map[string]int{"application/grpc": http.StatusOK, "application/proto": http.StatusOK, "application/json": http.StatusTooManyRequests} {
		r := call(t, ctxT(t), http.MethodPost, s.URL+"/grpc.health.v1.Health/Check", "acme", nil)
		r.Header.Set("Content-Type", kind)
		resp, err := s.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode, kind)
	}
	require.NoError(t, p.Release(ctxT(t)))
}
