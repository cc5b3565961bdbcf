package integration

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestErrorsThroughTransports: a client of connect-go gets the error of its server through the Transports of limithttp and
// idemhttp, by each protocol (A470: that of gRPC, in the trailers of a response without a body, was dropped).
func TestErrorsThroughTransports(t *testing.T) {
	t.Parallel()
	sess, _ := testkit.Shared(t).Session(nil)
	lim, err := concurrency.NewKeyedLimiter(sess, "keys", 1, nil)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(payUnary, connect.NewUnaryHandler(payUnary, func(context.Context, *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such account"))
	}))
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	limited := func(base http.RoundTripper) http.RoundTripper {
		rt, err := limithttp.Transport(lim, limithttp.Options{Key: func(*http.Request) (string, bool) { return "bank", true }}, base)
		require.NoError(t, err)
		return rt
	}
	base := s.Client().Transport
	for through, rt := range map[string]http.RoundTripper{
		"neither": base, "limithttp": limited(base), "idemhttp": &idemhttp.Transport{Base: base}, "both": limited(&idemhttp.Transport{Base: base}),
	} {
		for name, dialect := range dialects {
			client := connect.NewClient[structpb.Struct, structpb.Struct](&http.Client{Transport: rt}, s.URL+payUnary, dialect...)
			for range 2 {
				_, err := client.CallUnary(t.Context(), connect.NewRequest(&structpb.Struct{}))
				require.Equal(t, connect.CodeNotFound, connect.CodeOf(err), "%s, %s: %v", name, through, err)
				require.ErrorContains(t, err, "no such account")
			}
		}
	}
}
