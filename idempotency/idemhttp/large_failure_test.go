package idemhttp_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A390: the failure of a call of RPC whose body was larger than MaxResponse was replayed as "the call was done". It has its
// code, wherever the protocol puts it.
func TestLargeFailureOfACall(t *testing.T) {
	t.Parallel()
	frame := func(flags byte, content string) string {
		return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(content)))) + content
	}
	long := strings.Repeat("x", 100)
	const notFound = `{"code":"not_found","message":"`
	for name, c := range map[string]struct {
		kind, body, is string // what the duplicate's response has
		status, again  int
		trailer        bool
	}{
		"gRPC":                                 {"application/grpc", frame(0, long), "Grpc-Status: 5", 200, 200, true},
		"gRPC-Web":                             {"application/grpc-web+proto", frame(0, long) + frame(0x80, "grpc-status: 5\r\n"), "grpc-status: 5\r\n", 200, 200, false},
		"a stream of Connect":                  {"application/connect+proto", frame(0, long) + frame(2, `{"error":`+notFound+`"}}`), `{"error":{"code":"not_found"`, 200, 200, false},
		"Connect":                              {"application/proto", notFound + long + `"}`, `{"code":"not_found"`, 404, 404, false},
		"protobuf, a status without a code":    {"application/proto", long, "Idempotency-Body-Omitted: true", 400, 400, false},
		"Connect, with the code further below": {"application/proto", `{"message":"` + long + `","code":"invalid_argument"}`, "Idempotency-Body-Omitted: true", 400, 400, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t).instance(nil, nil).serve(&idemhttp.Options{MaxResponse: 50}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				if c.status != 200 {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(c.status)
				for part := range strings.SplitAfterSeq(c.body, ":") { // as a handler that writes it piece by piece
					_, _ = w.Write([]byte(part))
				}
				if c.trailer {
					w.Header().Set(http.TrailerPrefix+"Grpc-Status", "5")
				}
			})
			first := s.post("/shop.v1.Shop/Pay", "k", "", header("Content-Type", c.kind))
			require.Equal(t, []any{c.status, c.body}, []any{first.StatusCode, first.body})
			again := s.post("/shop.v1.Shop/Pay", "k", "", header("Content-Type", c.kind))
			require.True(t, again.replayed())
			require.Equal(t, c.again, again.StatusCode)
			require.Contains(t, fmt.Sprintf("%s\nGrpc-Status: %s\nIdempotency-Body-Omitted: %s", again.body, again.Header.Get("Grpc-Status"), again.Header.Get("Idempotency-Body-Omitted")), c.is)
			require.NotContains(t, again.body, "NOT_KEPT")
			require.EqualValues(t, 1, s.calls.Load())
		})
	}
}
