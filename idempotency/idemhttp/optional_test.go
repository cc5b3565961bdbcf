package idemhttp_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// V13: the two lines of the README, which ask the attempt for a child key, panicked for a request without a claim, as
// with Optional: the attempt is nil. Its key is a random one, as that of Transport.
func TestChildKeyWithoutAClaim(t *testing.T) {
	t.Parallel()
	s := shared(t).instance(nil, nil).serve(&idemhttp.Options{Optional: true}, func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		_, _ = io.WriteString(w, a.ChildKey("charge"))
	})
	first, second := s.post("/", "", ""), s.post("/", "", "")
	require.Equal(t, http.StatusOK, first.StatusCode)
	require.NotEmpty(t, first.body)
	require.NotEqual(t, first.body, second.body)
	require.Equal(t, s.post("/", "k", "").body, s.post("/", "k", "").body)
}
