package idemhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Q4, Q9, Q11: a grpc.Server that serves as a handler behind the Middleware has the outcomes that it has behind
// idemgrpc: a failure that may pass is not recorded, and what was attached to it is not written. The client's
// deadline does not end the attempt, and the client gets the Middleware's own answers as a status.
func TestServerOfGRPCAsHandler(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var calls atomic.Int64
	own := f.Root + "own"
	srv := grpc.NewServer()
	t.Cleanup(srv.Stop)
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Payments", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Pay", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			req := new(structpb.Struct)
			if err := dec(req); err != nil {
				return nil, err
			}
			if _, has := ctx.Deadline(); has {
				return nil, status.Error(codes.DataLoss, "the client's deadline")
			}
			a, _ := idempotency.FromContext(ctx)
			a.Attach(nil, clientv3.OpPut(own, "written"))
			if calls.Add(1); a.Attempt() == 1 {
				return nil, status.Error(codes.Code(req.GetFields()["code"].GetNumberValue()), "no")
			}
			return req, nil
		},
	}}}, nil)
	web := httptest.NewUnstartedServer(in.middleware(nil)(srv))
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(web.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(web.Certificate())
	conn, err := grpc.NewClient(web.Listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: trusted, ServerName: "example.com"})))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	pay := func(key string, code codes.Code) error {
		req, err := structpb.NewStruct(map[string]any{"code": int(code)})
		require.NoError(t, err)
		return conn.Invoke(metadata.AppendToOutgoingContext(ctxT(t), "idempotency-key", key), "/test.Payments/Pay", req, new(structpb.Struct))
	}
	for code, final := range map[codes.Code]bool{codes.Unavailable: false, codes.ResourceExhausted: false, codes.Aborted: false, codes.FailedPrecondition: true} {
		calls.Store(0)
		require.Equal(t, code, status.Code(pay(code.String(), code)))
		resp, err := in.client.Get(ctxT(t), own)
		require.NoError(t, err)
		require.Empty(t, resp.Kvs, code)
		if again := pay(code.String(), code); final {
			require.Equal(t, code, status.Code(again))
			require.EqualValues(t, 1, calls.Load(), code)
		} else {
			require.NoError(t, again)
			require.NoError(t, pay(code.String(), code))
			require.EqualValues(t, 2, calls.Load(), code)
			_, err = in.client.Delete(ctxT(t), own)
			require.NoError(t, err)
		}
	}

	refused := status.Convert(pay(`"open`, codes.OK))
	require.Equal(t, codes.InvalidArgument, refused.Code())
	require.Contains(t, refused.Message(), "idempotency: the idempotency key is malformed")
	info, ok := refused.Details()[0].(*errdetails.ErrorInfo)
	require.True(t, ok)
	require.Equal(t, "IDEMPOTENCY_KEY_MALFORMED", info.GetReason())
}
