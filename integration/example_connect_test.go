package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// The procedures of a service, as a generated package has them.
const (
	service          = "/pay.v1.Payments/"
	chargeProcedure  = service + "Charge"
	balanceProcedure = service + "Balance" // without side effects
	exportProcedure  = service + "Export"  // a stream
)

// connectService returns the handler of a service of connect-go.
func connectService(sess *concurrency.Session, cards *provider) http.Handler {
	handlers := http.NewServeMux() // in a program: the handler that the generated constructor returns
	handlers.Handle(chargeProcedure, connect.NewUnaryHandler(chargeProcedure, func(ctx context.Context, r *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error) {
		if r.Msg.Value <= 0 {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("nothing to pay")) // is recorded
		}
		a, _ := idempotency.FromContext(ctx)
		return connect.NewResponse(wrapperspb.String(cards.charge(a.ChildKey("charge")))), nil
	}))
	handlers.Handle(balanceProcedure, connect.NewUnaryHandler(balanceProcedure, func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		if r.Header().Get("Idempotency-Key") != "" {
			return nil, connect.NewError(connect.CodeInternal, errors.New("no key was expected"))
		}
		return connect.NewResponse(wrapperspb.String(r.HTTPMethod() + ", without a key")), nil
	}, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	handlers.Handle(exportProcedure, connect.NewServerStreamHandler(exportProcedure, func(_ context.Context, _ *connect.Request[wrapperspb.StringValue], out *connect.ServerStream[wrapperspb.StringValue]) error {
		for part := range 3 {
			if err := out.Send(wrapperspb.String(fmt.Sprintf("part %d", part+1))); err != nil {
				return err
			}
		}
		return nil
	}))

	st := must(idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true}))
	once := must(idemhttp.Middleware(st, nil))
	routes := http.NewServeMux()
	routes.Handle(service, once(handlers))
	routes.Handle(balanceProcedure, handlers) // more specific, so it counts: over gRPC a call without side effects is a POST, too
	return routes
}

// A service of connect-go behind the middleware. The client's transport sends the keys; an interceptor that sets the
// header does as well.
func Example_connect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := openShop(ctx)
	defer s.stop()
	web := httptest.NewUnstartedServer(connectService(s.first, &provider{charges: map[string]string{}}))
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	keys := &http.Client{Transport: &idemhttp.Transport{Base: web.Client().Transport}}

	// Each protocol, twice with one key.
	for _, protocol := range []connect.ClientOption{connect.WithClientOptions(), connect.WithGRPC(), connect.WithGRPCWeb()} {
		client := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](keys, web.URL+chargeProcedure, protocol)
		payment := idemhttp.WithNewKey(ctx) // for a request and its retries
		for range 2 {
			receipt := must(client.CallUnary(payment, connect.NewRequest(wrapperspb.Int64(100))))
			fmt.Println("charge:", receipt.Msg.Value, "replayed:", receipt.Header().Get("Idempotent-Replayed") == "true")
		}
	}

	// A call without side effects is a GET, and needs no key.
	balance := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](keys, web.URL+balanceProcedure,
		connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	fmt.Println("balance:", must(balance.CallUnary(ctx, connect.NewRequest(wrapperspb.String("me")))).Msg.Value)

	// A stream is replayed with all its messages.
	export := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](keys, web.URL+exportProcedure)
	once := idemhttp.WithNewKey(ctx)
	for range 2 {
		stream := must(export.CallServerStream(once, connect.NewRequest(wrapperspb.String("me"))))
		parts := 0
		for stream.Receive() {
			parts++
		}
		fmt.Println("export:", parts, "parts", "replayed:", stream.ResponseHeader().Get("Idempotent-Replayed") == "true", stream.Err())
		_ = stream.Close()
	}

	// What the middleware refuses is an error of Connect, with the reason of idemgrpc.
	without := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](web.Client(), web.URL+chargeProcedure)
	_, err := without.CallUnary(ctx, connect.NewRequest(wrapperspb.Int64(100)))
	fmt.Println("without a key:", connect.CodeOf(err), reasonIn(err))
	// Output:
	// charge: receipt 1 replayed: false
	// charge: receipt 1 replayed: true
	// charge: receipt 2 replayed: false
	// charge: receipt 2 replayed: true
	// charge: receipt 3 replayed: false
	// charge: receipt 3 replayed: true
	// balance: GET, without a key
	// export: 3 parts replayed: false <nil>
	// export: 3 parts replayed: true <nil>
	// without a key: invalid_argument IDEMPOTENCY_KEY_MISSING
}

// reasonIn returns the reason in the ErrorInfo of an error.
func reasonIn(err error) string {
	var ce *connect.Error
	if errors.As(err, &ce) {
		for _, d := range ce.Details() {
			if m, err := d.Value(); err == nil {
				if info, ok := m.(*errdetails.ErrorInfo); ok {
					return info.GetReason()
				}
			}
		}
	}
	return ""
}
