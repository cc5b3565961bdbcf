package integration

import (
	"compress/zlib"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// unzip is a decompressor for connect.
type unzip struct{ io.ReadCloser }

func (u *unzip) Reset(r io.Reader) (err error) {
	u.ReadCloser, err = zlib.NewReader(r)
	return err
}

// The second coding of a service and its clients, beside gzip. What it is does not matter: the Middleware does not read it.
const coding = "zstd"

func unzips() connect.Decompressor { return &unzip{io.NopCloser(nil)} }
func zips() connect.Compressor     { return zlib.NewWriter(io.Discard) }

// A580: a service that compresses by something else than gzip, for clients that accept it, compresses the end of gRPC-Web
// and of a stream of Connect too. The Middleware could not read it: a success executed again for each duplicate. Such a
// response is not asked for. What the end says counts as before.
func TestEndOfAConnectCallInAnotherCoding(t *testing.T) {
	t.Parallel()
	accepts := connect.WithAcceptCompression(coding, unzips, zips)
	for name, protocol := range map[string][]connect.ClientOption{"Connect": {accepts}, "gRPC": {accepts, connect.WithGRPC()}, "gRPC-Web": {accepts, connect.WithGRPCWeb()}} {
		for _, procedure := range []string{payUnary, payServer, payClient, payBidi} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, nil, connect.WithCompression(coding, unzips, zips))
				for n := range 3 {
					_, header, err := s.call(procedure, "paid", protocol)
					require.NoError(t, err)
					require.Equal(t, n > 0, header.Get("Idempotent-Replayed") == "true")
					require.EqualValues(t, 1, s.calls.Load())
				}
				s.calls.Store(0)
				_, _, err := s.call(procedure, "down", protocol, "Code", "unavailable")
				require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
				_, _, err = s.call(procedure, "down", protocol)
				require.NoError(t, err)
				require.EqualValues(t, 2, s.calls.Load(), "what is unavailable executes again")
				_, _, err = s.call(procedure, "gone", protocol, "Code", "not_found")
				require.Equal(t, connect.CodeNotFound, connect.CodeOf(err))
				_, _, err = s.call(procedure, "gone", protocol)
				require.Equal(t, connect.CodeNotFound, connect.CodeOf(err), "a final no is replayed")
			})
		}
	}
}

// A580: a client that compresses its messages by something else than gzip gets the response in the same coding. Where the
// end of the call is in it, the call is refused before it begins. It executed again for each duplicate.
func TestConnectClientThatSendsAnotherCoding(t *testing.T) {
	t.Parallel()
	sends := []connect.ClientOption{connect.WithAcceptCompression(coding, unzips, zips), connect.WithSendCompression(coding)}
	for name, protocol := range map[string][]connect.ClientOption{"Connect": sends, "gRPC": append(sends[:2:2], connect.WithGRPC()), "gRPC-Web": append(sends[:2:2], connect.WithGRPCWeb())} {
		for _, procedure := range []string{payUnary, payServer} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, &idemhttp.Options{Payload: func(*http.Request, []byte) (any, error) { return nil, nil }}, connect.WithCompression(coding, unzips, zips))
				for range 3 {
					_, _, err := s.call(procedure, "k", protocol)
					if name == "gRPC" || name == "Connect" && procedure == payUnary { // the end is in the trailers, or in the status
						require.NoError(t, err)
						require.EqualValues(t, 1, s.calls.Load())
						continue
					}
					why, _ := reason(t, err)
					require.Equal(t, idemgrpc.ReasonPayload, why)
					require.ErrorContains(t, err, coding)
					require.Zero(t, s.calls.Load())
				}
			})
		}
	}
}
