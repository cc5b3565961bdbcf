package idemgrpc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// soon bounds what should happen at once.
const soon = testkit.Soon

var ctxT = testkit.Context

// instance is a process of the fleet: a session and a store of its own.
type instance struct {
	*idempotency.Store
	t      testing.TB
	sess   *concurrency.Session
	client *embedtest.Client
}

// fleet starts instances on one prefix.
func fleet(t testing.TB, n int, opts *idempotency.Options) (all []instance) {
	t.Helper()
	f := testkit.Shared(t)
	if opts == nil {
		opts = &idempotency.Options{SingleTenant: true}
	}
	for range n {
		s, c := f.Session(&concurrency.SessionOptions{TTL: 30 * time.Second})
		st, err := idempotency.NewStore(s, "store", opts)
		require.NoError(t, err)
		all = append(all, instance{st, t, s, c})
	}
	return all
}

// The service: one unary method and one stream, whose messages are google.protobuf.Struct,
// which has maps.
const (
	payMethod   = "/test.Payments/Pay"
	watchMethod = "/test.Payments/Watch"
)

type handler func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error)

// server is a server and a connection to it.
type server struct {
	t     testing.TB
	conn  *grpc.ClientConn
	calls *atomic.Int64
}

// interceptors returns those that are set up well.
func (in instance) interceptors(opts *idemgrpc.Options) []grpc.ServerOption {
	in.t.Helper()
	stream, err := idemgrpc.StreamServerInterceptor(in.Store, opts)
	require.NoError(in.t, err)
	return []grpc.ServerOption{grpc.UnaryInterceptor(in.unary(opts)), grpc.StreamInterceptor(stream)}
}

func (in instance) unary(opts *idemgrpc.Options) grpc.UnaryServerInterceptor {
	in.t.Helper()
	unary, err := idemgrpc.UnaryServerInterceptor(in.Store, opts)
	require.NoError(in.t, err)
	return unary
}

func (in instance) serve(opts *idemgrpc.Options, h handler, dial ...grpc.DialOption) server {
	t := in.t
	t.Helper()
	calls := new(atomic.Int64)
	srv := grpc.NewServer(in.interceptors(opts)...)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Payments", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Pay", Handler: func(_ any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			req := new(structpb.Struct)
			if err := dec(req); err != nil {
				return nil, err
			}
			return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: payMethod}, func(ctx context.Context, req any) (any, error) {
				calls.Add(1)
				resp, err := h(ctx, req.(*structpb.Struct))
				if err != nil {
					return nil, err
				}
				return resp, nil
			})
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(any, grpc.ServerStream) error {
			calls.Add(1)
			return nil
		}}},
	}, nil)
	return server{t, testkit.Connected(t, srv, dial...), calls}
}

// reply is what a call returned.
type reply struct {
	resp     *structpb.Struct
	err      error
	replayed bool
}

func (s server) call(ctx context.Context, req *structpb.Struct) reply {
	var header metadata.MD
	re := reply{resp: new(structpb.Struct)}
	re.err = s.conn.Invoke(ctx, payMethod, req, re.resp, grpc.Header(&header))
	re.replayed = len(header.Get("idempotent-replayed")) == 1
	return re
}

// pay calls with a key.
func (s server) pay(key string, fields ...any) reply {
	s.t.Helper()
	ctx := ctxT(s.t)
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
	}
	return s.call(ctx, message(s.t, fields...))
}

func (s server) later(key string, fields ...any) <-chan reply {
	ch := make(chan reply, 1)
	ctx := metadata.AppendToOutgoingContext(ctxT(s.t), "idempotency-key", key)
	req := message(s.t, fields...)
	go func() { ch <- s.call(ctx, req) }()
	return ch
}

// message makes one of names and values.
func message(t testing.TB, fields ...any) *structpb.Struct {
	t.Helper()
	m := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i].(string)] = fields[i+1]
	}
	s, err := structpb.NewStruct(m)
	require.NoError(t, err)
	return s
}

// refused is the reason of an answer that is the interceptor's own.
func refused(t testing.TB, err error, code codes.Code, reason string) (retry bool) {
	t.Helper()
	st := status.Convert(err)
	require.Equal(t, code, st.Code(), st)
	var got string
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			require.Equal(t, idemgrpc.Domain, d.GetDomain())
			got = d.GetReason()
		case *errdetails.RetryInfo:
			require.Positive(t, d.GetRetryDelay().AsDuration())
			retry = true
		}
	}
	require.Equal(t, reason, got)
	return retry
}

// refOf is the reference of the record that an answer of the interceptor's own names.
func refOf(err error) string { return metadataOf(err)[idemgrpc.MetadataRef] }

// metadataOf is the metadata of an answer of the interceptor's own.
func metadataOf(err error) map[string]string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetMetadata()
		}
	}
	return nil
}

// paid is the handler of most tests.
func paid(context.Context, *structpb.Struct) (*structpb.Struct, error) {
	return structpb.NewStruct(map[string]any{"receipt": "r1"})
}

func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return testkit.Got(t, ch, what)
}
