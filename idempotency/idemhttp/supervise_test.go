package idemhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// TestHealthChecksOfCalls: a health check of gRPC or Connect has no key, and reaches a server behind the Middleware, as
// behind idemgrpc (A477 in internal/proof/tested-failures.md). A request of plain HTTP at the same path needs one.
func TestHealthChecksOfCalls(t *testing.T) {
	t.Parallel()
	s := shared(t).instance(nil, nil).serve(nil, paid)
	const check = "/grpc.health.v1.Health/Check"
	for name, c := range map[string]struct {
		path, kind string
		passes     bool
	}{
		"gRPC":             {check, "application/grpc", true},
		"Connect":          {check, "application/proto", true},
		"reflection":       {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "application/grpc+proto", true},
		"another method":   {"/test.Work/Work", "application/proto", false},
		"of plain HTTP":    {check, "application/json", false},
		"within a service": {"/api" + check, "application/proto", false},
	} {
		re := s.post(c.path, "", "", header("Content-Type", c.kind))
		require.Equal(t, c.passes, re.StatusCode == http.StatusCreated, name)
		require.Equal(t, c.passes, re.Header.Get("Location") != "", name)
		if c.kind == "application/json" {
			require.Equal(t, idemhttp.CodeMissing, re.problem(t).Code)
		}
	}
	require.EqualValues(t, 3, s.calls.Load())
}
