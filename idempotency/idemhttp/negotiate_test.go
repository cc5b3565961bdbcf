package idemhttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A580: a handler does not learn of codings that the Middleware does not read, where the end of a call would be in one, nor of
// a deadline of the client's, whatever its request is (A584): a gateway of gRPC reads Grpc-Timeout of any request.
func TestForHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sent, got http.Header }{
		"nothing":        {http.Header{}, http.Header{}},
		"plain HTTP":     {http.Header{"Accept-Encoding": {"br, gzip"}, "Grpc-Timeout": {"1S"}}, http.Header{"Accept-Encoding": {"br, gzip"}}},
		"gRPC-Web":       {http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Accept-Encoding": {"zstd,gzip", "identity"}}, http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Accept-Encoding": {"gzip,identity"}}},
		"none is read":   {http.Header{"Grpc-Accept-Encoding": {"zstd"}}, http.Header{"Grpc-Accept-Encoding": {"identity"}}},
		"Connect stream": {http.Header{"Connect-Accept-Encoding": {"br, GZip"}, "Connect-Timeout-Ms": {"9"}}, http.Header{"Connect-Accept-Encoding": {"GZip"}}},
		"Connect unary":  {http.Header{"Content-Type": {"application/proto"}, "Accept-Encoding": {"zstd;q=1, gzip;q=0.5"}}, http.Header{"Content-Type": {"application/proto"}, "Accept-Encoding": {"gzip;q=0.5"}}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header = c.sent
		before := c.sent.Clone()
		r2 := forHandler(r.WithContext(t.Context()))
		require.Equal(t, c.got, r2.Header, name)
		require.Equal(t, before, r.Header, "%s: what is in front keeps its own", name)
	}
}

func TestOtherCoding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, name, coding string
		refused            bool
	}{
		{"application/grpc-web+proto", "Grpc-Encoding", "zstd", true},
		{"application/grpc-web-text", "Grpc-Encoding", "br", true},
		{"application/connect+json", "Connect-Content-Encoding", "zstd", true},
		{"application/connect+json", "Connect-Content-Encoding", "GZIP", false},
		{"application/grpc-web", "Grpc-Encoding", "identity", false},
		{"application/grpc-web", "Grpc-Encoding", "", false},
		{"application/grpc", "Grpc-Encoding", "zstd", false},     // its end is in the trailers
		{"application/proto", "Content-Encoding", "zstd", false}, // its end is in the status
		{"application/json", "Content-Encoding", "zstd", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header = http.Header{"Content-Type": {c.kind}, c.name: {c.coding}}
		require.Equal(t, c.refused, otherCoding(r) != "", c)
	}
}
