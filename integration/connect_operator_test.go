package integration

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// V31: an operator finishes a call of any protocol and codec behind idemhttp, with a message or a failure, which its
// client reads. A response of plain HTTP is refused: each client took it for a failure of the transport.
func TestOperatorFinishesAnyCall(t *testing.T) {
	t.Parallel()
	vias := map[string]string{
		"Connect": "http/connect", "Connect, JSON": "http/connect+json", "Connect, gzip": "http/connect",
		"gRPC": "http/grpc", "gRPC, JSON": "http/grpc+json", "gRPC, gzip": "http/grpc",
		"gRPC-Web": "http/grpc-web", "gRPC-Web, JSON": "http/grpc-web+json", "gRPC-Web, gzip": "http/grpc-web",
	}
	plain := idemhttp.Response{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte("receipt")}
	for name, dialect := range dialects {
		for _, procedure := range []string{payUnary, payServer} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, &idemhttp.Options{Each: func(_ *http.Request) []idempotency.Option {
					return []idempotency.Option{idempotency.OnLost(idempotency.Refuse)}
				}})
				via := vias[name]
				if procedure == payServer {
					via = strings.Replace(via, "http/connect", "http/connect-stream", 1)
				}
				resolve := func(key string, encode func() ([]byte, error)) error {
					_, _, err := s.call(procedure, key, dialect, "Code", "deadline_exceeded")
					require.Equal(t, connect.CodeDeadlineExceeded, connect.CodeOf(err), err)
					for r, err := range s.store.List(ctxT(t), idempotency.Filter{State: idempotency.Unknown}) {
						require.NoError(t, err)
						require.Equal(t, via, r.Via)
						require.Equal(t, "google.protobuf.Struct", r.Returns)
						require.ErrorIs(t, s.store.Resolve(ctxT(t), r.Ref, idempotency.WasDone(plain.Encode())), idempotency.ErrInvalid)
						b, err := encode()
						require.NoError(t, err)
						require.NoError(t, s.store.Resolve(ctxT(t), r.Ref, idempotency.WasDone(b)))
					}
					_, header, err := s.call(procedure, key, dialect, "Code", "deadline_exceeded")
					if err == nil {
						require.Equal(t, "true", header.Get("Idempotent-Replayed"))
					}
					return err
				}
				require.NoError(t, resolve("done", func() ([]byte, error) {
					m, err := structpb.NewStruct(map[string]any{"a": 1, "b": true, "c": "c", "d": nil, "note": strings.Repeat("a message that is worth compressing ", 20)})
					require.NoError(t, err)
					encode := proto.Marshal
					if strings.HasSuffix(via, "+json") {
						encode = protojson.Marshal
					}
					b, err := encode(m)
					require.NoError(t, err)
					return idemhttp.EncodeMessage(via, b)
				}))
				err := resolve("declined", func() ([]byte, error) { return idemhttp.EncodeFailure(via, 9, "déclined") })
				require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err), err)
				require.Equal(t, "déclined", textOf(err))
				require.EqualValues(t, 2, s.calls.Load())
			})
		}
	}
}
