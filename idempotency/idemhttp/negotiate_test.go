package idemhttp

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A580: a handler does not learn of codings that the Middleware does not read, where the end of a call would be in one, nor of
// a deadline of the client's, whatever its request is (A584): a gateway of gRPC reads Grpc-Timeout of any request.
func TestForHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sent, got http.Header }{
		"nothing":         {http.Header{}, http.Header{}},
		"plain HTTP":      {http.Header{"Accept-Encoding": {"br, gzip"}, "Grpc-Timeout": {"1S"}}, http.Header{"Accept-Encoding": {"br, gzip"}}},
		"gRPC-Web":        {http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Accept-Encoding": {"zstd,gzip", "identity"}}, http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Accept-Encoding": {"gzip,identity"}}},
		"none is read":    {http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Accept-Encoding": {"zstd"}}, http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Accept-Encoding": {"identity"}}},
		"Connect stream":  {http.Header{"Content-Type": {"application/connect+json"}, "Connect-Accept-Encoding": {"br, GZip"}, "Connect-Timeout-Ms": {"9"}}, http.Header{"Content-Type": {"application/connect+json"}, "Connect-Accept-Encoding": {"GZip"}}},
		"named, not used": {http.Header{"Content-Type": {"application/connect+json"}, "Connect-Content-Encoding": {"zstd"}}, http.Header{"Content-Type": {"application/connect+json"}}},
		"gzip":            {http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Encoding": {"gzip"}}, http.Header{"Content-Type": {"application/grpc-web"}, "Grpc-Encoding": {"gzip"}}},
		"gRPC":            {http.Header{"Content-Type": {"application/grpc"}, "Grpc-Accept-Encoding": {"zstd"}, "Grpc-Encoding": {"zstd"}}, http.Header{"Content-Type": {"application/grpc"}, "Grpc-Accept-Encoding": {"zstd"}, "Grpc-Encoding": {"zstd"}}},
		"Connect unary":   {http.Header{"Content-Type": {"application/proto"}, "Accept-Encoding": {"zstd;q=1, gzip;q=0.5"}}, http.Header{"Content-Type": {"application/proto"}, "Accept-Encoding": {"gzip;q=0.5"}}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header = c.sent
		before := c.sent.Clone()
		r2 := forHandler(r.WithContext(t.Context()))
		require.Equal(t, c.got, r2.Header, name)
		require.Equal(t, before, r.Header, "%s: what is in front keeps its own", name)
	}
}

// A580: the coding of the end of a response counts, where there is such an end.
func TestOtherCoding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, name, coding string
		other              bool
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
		require.Equal(t, c.other, otherCoding(r) != "", c)
	}
}

// A648: a call that names a coding which is not read, and compresses no message by it, was refused for good: short messages are
// not compressed, and the handler gets the call without that coding, so it answers in one that is read.
func TestCompressedCall(t *testing.T) {
	t.Parallel()
	plain, packed := string(frame(0, "m")), string(frame(flagCompressed, "m"))
	c := &config{Options: Options{MaxRequest: 1 << 10, Payload: func(*http.Request, []byte) (any, error) { return nil, nil }}}
	for body, refused := range map[string]bool{"": false, plain: false, plain + plain: false, plain[:3]: false, packed: true, plain + packed: true, plain + packed[:6]: true} {
		for kind, sent := range map[string]string{"application/grpc-web": body, "application/grpc-web-text": base64.StdEncoding.EncodeToString([]byte(body))} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(sent))
			r.Header = http.Header{"Content-Type": {kind}, "Grpc-Encoding": {"zstd"}}
			_, _, problem := c.content(r)
			require.Equal(t, refused, problem != nil, "%s %q", kind, body)
		}
	}
}
