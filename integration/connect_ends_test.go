package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"
)

// callEmpty makes a call whose messages are empty.
func callEmpty(t *testing.T, url, procedure, key string, dialect []connect.ClientOption) error {
	t.Helper()
	r := connect.NewRequest(&emptypb.Empty{})
	r.Header().Set("Idempotency-Key", key)
	_, err := connect.NewClient[emptypb.Empty, emptypb.Empty](http.DefaultClient, url+procedure, dialect...).CallUnary(ctxT(t), r)
	return err
}

// unaryDialects are those that need no HTTP/2.
var unaryDialects = map[string][]connect.ClientOption{
	"Connect": nil, "Connect, JSON": {connect.WithProtoJSON()}, "gRPC-Web": {connect.WithGRPCWeb()},
}

// V2: behind a recoverer that writes nothing, a panic after the charge is not recorded as a success. An empty message
// is one.
func TestRecovererThatWritesNothing(t *testing.T) {
	t.Parallel()
	const procedure = "/shop.v1.Shop/Pay"
	for name, dialect := range unaryDialects {
		var calls atomic.Int64
		h := connect.NewUnaryHandler(procedure, func(_ context.Context, r *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			calls.Add(1)
			if r.Header().Get("Idempotency-Key") == "panic" {
				panic("after the charge")
			}
			return connect.NewResponse(&emptypb.Empty{}), nil
		})
		s := httptest.NewServer(middleware(t, stores(t)[0], nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { _ = recover() }()
			h.ServeHTTP(w, r)
		})))
		for range 2 {
			_ = callEmpty(t, s.URL, procedure, "panic", dialect)
		}
		require.EqualValues(t, 2, calls.Load(), "%s: it executes again, as with TakeOver", name)
		for range 2 {
			err := callEmpty(t, s.URL, procedure, "empty", dialect)
			require.NoError(t, err, name)
		}
		require.EqualValues(t, 3, calls.Load(), name)
		s.Close()
	}
}

// V4: a procedure that an instance of the former release does not have executes at one of the next release, in place
// of a replay of the 404.
func TestProcedureOfTheNextRelease(t *testing.T) {
	t.Parallel()
	const procedure = "/shop.v1.Shop/Refund"
	h := connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	})
	for name, dialect := range unaryDialects {
		st := stores(t)
		former, next := httptest.NewServer(middleware(t, st[0], nil)(http.NewServeMux())), httptest.NewServer(middleware(t, st[1], nil)(h))
		err := callEmpty(t, former.URL, procedure, "k", dialect)
		require.Equal(t, connect.CodeUnimplemented, connect.CodeOf(err), name)
		err = callEmpty(t, next.URL, procedure, "k", dialect)
		require.NoError(t, err, name)
		former.Close()
		next.Close()
	}
}
