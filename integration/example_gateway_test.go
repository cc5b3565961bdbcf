package integration

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// gatewayStatuses are the statuses of idemhttp for refusals that are FAILED_PRECONDITION, of which the gateway
// makes 400.
var gatewayStatuses = map[string]int{
	idemgrpc.ReasonReused:  http.StatusUnprocessableEntity,
	idemgrpc.ReasonUnknown: http.StatusConflict,
	idemgrpc.ReasonFailed:  http.StatusConflict,
	idemgrpc.ReasonNotKept: http.StatusConflict,
}

// gatewayOptions are the options of a gateway in front of idemgrpc.
func gatewayOptions() []runtime.ServeMuxOption {
	return []runtime.ServeMuxOption{
		runtime.WithIncomingHeaderMatcher(func(name string) (string, bool) {
			if strings.EqualFold(name, "Idempotency-Key") {
				return "idempotency-key", true // the gateway drops it by default
			}
			return runtime.DefaultHeaderMatcher(name)
		}),
		runtime.WithOutgoingHeaderMatcher(func(name string) (string, bool) {
			if name == "idempotent-replayed" {
				return "Idempotent-Replayed", true
			}
			return runtime.MetadataHeaderPrefix + name, true
		}),
		runtime.WithErrorHandler(func(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
			for _, d := range status.Convert(err).Details() {
				switch d := d.(type) {
				case *errdetails.ErrorInfo:
					if s, ok := gatewayStatuses[d.GetReason()]; ok && d.GetDomain() == idemgrpc.Domain {
						err = &runtime.HTTPStatusError{HTTPStatus: s, Err: err}
					}
				case *errdetails.RetryInfo:
					seconds := (d.GetRetryDelay().AsDuration() + time.Second - 1) / time.Second
					w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
				}
			}
			runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
		}),
	}
}

// grpcPayments serves one method behind idemgrpc, and returns a connection to it. In a program protoc has written
// most of it.
func grpcPayments(sess *concurrency.Session, cards *provider) (conn *grpc.ClientConn, stop func()) {
	st := must(idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true}))
	srv := grpc.NewServer(grpc.UnaryInterceptor(must(idemgrpc.UnaryServerInterceptor(st, nil))))
	pay := func(ctx context.Context, _ any) (any, error) {
		a, _ := idempotency.FromContext(ctx)
		return wrapperspb.String(cards.charge(a.ChildKey("charge"))), nil
	}
	srv.RegisterService(&grpc.ServiceDesc{ServiceName: "pay.v1.Payments", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Charge", Handler: func(impl any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.Int64Value)
			if err := decode(in); err != nil {
				return nil, err
			}
			return intercept(ctx, in, &grpc.UnaryServerInfo{Server: impl, FullMethod: chargeProcedure}, pay)
		},
	}}}, nil)
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() {
		if err := srv.Serve(l); err != nil {
			log.Print(err)
		}
	}()
	conn = must(grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())))
	return conn, func() {
		_ = conn.Close()
		srv.Stop()
	}
}

// forward does what the gateway's generated code does for a method with body: "*".
func forward(mux *runtime.ServeMux, conn *grpc.ClientConn) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		in, out := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(r.Context(), mux, r, chargeProcedure)
		if err != nil {
			runtime.HTTPError(r.Context(), mux, out, w, r, err)
			return
		}
		req, resp, md := new(wrapperspb.Int64Value), new(wrapperspb.StringValue), runtime.ServerMetadata{}
		if err = in.NewDecoder(r.Body).Decode(req); err == nil {
			err = conn.Invoke(ctx, chargeProcedure, req, resp, grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
		}
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, out, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, out, w, r, resp)
	}
}

// A client of HTTP, grpc-gateway, and a gRPC server behind idemgrpc: the key arrives, and the client sees the
// statuses that the draft of the header has.
func Example_gateway() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := openShop(ctx)
	defer s.stop()
	conn, stop := grpcPayments(s.first, &provider{charges: map[string]string{}})
	defer stop()
	mux := runtime.NewServeMux(gatewayOptions()...)
	if err := mux.HandlePath(http.MethodPost, "/v1/payments", forward(mux, conn)); err != nil {
		log.Fatal(err)
	}

	post := func(key, body string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/payments", strings.NewReader(body))
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		mux.ServeHTTP(w, r)
		text := must(io.ReadAll(w.Body))
		if w.Code != http.StatusOK {
			text = []byte("refused") // a google.rpc.Status in JSON
		}
		fmt.Println(w.Code, string(text), "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	post("4f1b", `"100"`)
	post("4f1b", `"100"`)
	post("4f1b", `"200"`)
	post("", `"100"`)
	// Output:
	// 200 "receipt 1" replayed: false
	// 200 "receipt 1" replayed: true
	// 422 refused replayed: false
	// 400 refused replayed: false
}
