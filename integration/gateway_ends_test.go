package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// codesBehindAGateway serves a gateway in front of a service without idemgrpc, each of whose calls ends with the code in its
// metadata. It returns the calls, and how many of them had a deadline.
func codesBehindAGateway(t *testing.T, opts ...runtime.ServeMuxOption) (gateway http.Handler, calls, deadlines *atomic.Int64) {
	t.Helper()
	calls, deadlines = new(atomic.Int64), new(atomic.Int64)
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: "pay.v1.Payments", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Charge", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			calls.Add(1)
			if _, has := ctx.Deadline(); has {
				deadlines.Add(1)
			}
			md, _ := metadata.FromIncomingContext(ctx)
			code, err := strconv.Atoi(md.Get("code")[0])
			if err == nil {
				err = status.Error(codes.Code(code), "the bank says no")
			}
			if err == nil {
				err = decode(new(wrapperspb.StringValue))
			}
			return wrapperspb.String("paid"), err
		},
	}}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	mux := runtime.NewServeMux(opts...)
	require.NoError(t, mux.HandlePath(http.MethodPost, "/v1/payments", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		_, out := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(r.Context(), mux, r, chargeProcedure)
		resp := new(wrapperspb.StringValue)
		if err == nil {
			err = conn.Invoke(ctx, chargeProcedure, wrapperspb.String(""), resp)
		}
		if err != nil {
			runtime.HTTPError(ctx, mux, out, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, resp)
	}))
	return mux, calls, deadlines
}

// A583: in front of a grpc-gateway, an error of the service ends as behind idemgrpc: ABORTED, a conflict with another
// call, was recorded as final by its 409. A584: the gateway makes a deadline of Grpc-Timeout of any request, by which the work
// was interrupted and executed again: no attempt has the client's deadline.
func TestEndsBehindAGateway(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]runtime.ServeMuxOption{"bare": nil, "with the options of the example": gatewayOptions()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gateway, calls, deadlines := codesBehindAGateway(t, opts...)
			for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
				once := under(t, policy)(gateway)
				for code := codes.OK; code <= codes.Unauthenticated; code++ {
					calls.Store(0)
					final := idemgrpc.RememberFinal(code) == idempotency.Remember
					post := func() answer {
						return send(t, once, "/v1/payments", fmt.Sprint("code", int(code)), "Grpc-Metadata-Code", strconv.Itoa(int(code)), "Grpc-Timeout", "1H")
					}
					first := post()
					require.Equal(t, runtime.HTTPStatusFromCode(code), first.status, code)
					again := post()
					require.Equal(t, final, again.replayed, code)
					switch {
					case final || policy == idempotency.Refuse:
						require.EqualValues(t, 1, calls.Load(), code)
					default:
						require.EqualValues(t, 2, calls.Load(), code)
					}
				}
			}
			require.Zero(t, deadlines.Load())
		})
	}
}
