package limitgrpc_test

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
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var ctxT = testkit.Context

// instance is a process of the fleet.
type instance struct {
	*concurrency.KeyedLimiter
	f      testkit.Fixture
	sess   *concurrency.Session
	client *embedtest.Client
}

func newInstance(t testing.TB, limit int) instance {
	t.Helper()
	f := testkit.Shared(t)
	s, c := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second})
	lim, err := concurrency.NewKeyedLimiter(s, "tenants", limit, nil)
	require.NoError(t, err)
	return instance{lim, f, s, c}
}

// until waits until the queue of a key is as it should be.
func (in instance) until(key string, holders, waiters int) {
	in.f.T.Helper()
	for st, err := range in.Key(key).Watch(ctxT(in.f.T)) {
		require.NoError(in.f.T, err)
		if len(st.Holders) == holders && len(st.Waiters) == waiters {
			return
		}
	}
	require.FailNow(in.f.T, "the queue never was so")
}

// take takes a permit beside the interceptors.
func (in instance) take(key string, opts ...concurrency.AcquireOption) *concurrency.Permit {
	in.f.T.Helper()
	p, err := in.Key(key).TryAcquire(ctxT(in.f.T), opts...)
	require.NoError(in.f.T, err)
	in.f.T.Cleanup(func() { _ = p.Release(context.WithoutCancel(ctxT(in.f.T))) })
	return p
}

// The service: a unary method, a stream of messages, and one message for a stream of them.
const (
	workMethod  = "/test.Work/Work"
	watchMethod = "/test.Work/Watch"
	sumMethod   = "/test.Work/Sum"
)

var (
	watchStream = &grpc.StreamDesc{StreamName: "Watch", ServerStreams: true, ClientStreams: true}
	sumStream   = &grpc.StreamDesc{StreamName: "Sum", ClientStreams: true}
)

type message = wrapperspb.StringValue

// byTenant is the Key of a server: tenant in the metadata. A call without one is not limited, and that
// of the tenant "empty" has no key.
func byTenant(ctx context.Context, _ string) (string, bool) {
	tenants := metadata.ValueFromIncomingContext(ctx, "tenant")
	if len(tenants) == 0 {
		return "", false
	}
	if tenants[0] == "empty" {
		return "", true
	}
	return tenants[0], true
}

// options are those of most tests.
func options(change ...func(*limitgrpc.Options)) limitgrpc.Options {
	o := limitgrpc.Options{Key: byTenant}
	for _, c := range change {
		c(&o)
	}
	return o
}

func wait(d time.Duration) func(*limitgrpc.Options) {
	return func(o *limitgrpc.Options) { o.Wait = d }
}

// reports is a ReportError, for as many errors as it has room for.
type reports chan error

func (rs reports) option(o *limitgrpc.Options) {
	o.ReportError = func(_ context.Context, _ string, err error) {
		select {
		case rs <- err:
		default: // the test has as many as it wants
		}
	}
}

type (
	unary  func(ctx context.Context, req *message) (*message, error)
	stream func(grpc.ServerStream) error
)

// server is a server and a connection to it.
type server struct {
	t     testing.TB
	conn  *grpc.ClientConn
	calls *atomic.Int64
}

// interceptors limit a server.
func (in instance) interceptors(o limitgrpc.Options) []grpc.ServerOption {
	in.f.T.Helper()
	u, err := limitgrpc.UnaryServerInterceptor(in, o)
	require.NoError(in.f.T, err)
	s, err := limitgrpc.StreamServerInterceptor(in, o)
	require.NoError(in.f.T, err)
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(recovering, u), grpc.StreamInterceptor(s)}
}

// recovering turns the panic of a handler into an error, as servers do.
func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.DataLoss, "panicked: %v", p)
		}
	}()
	return handler(ctx, req)
}

// serve serves a unary and a streaming handler.
func serve(t testing.TB, opts []grpc.ServerOption, u unary, s stream, dial ...grpc.DialOption) server {
	t.Helper()
	calls := new(atomic.Int64)
	srv := grpc.NewServer(opts...)
	streams := func(_ any, ss grpc.ServerStream) error {
		calls.Add(1)
		return s(ss)
	}
	watch, sum := *watchStream, *sumStream
	watch.Handler, sum.Handler = streams, streams
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Work", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Work", Handler: func(_ any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			req := new(message)
			if err := dec(req); err != nil {
				return nil, err
			}
			h := func(ctx context.Context, req any) (any, error) {
				calls.Add(1)
				return u(ctx, req.(*message))
			}
			if intercept == nil {
				return h(ctx, req)
			}
			return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: workMethod}, h)
		}}},
		Streams: []grpc.StreamDesc{watch, sum},
	}, nil)
	return server{t, testkit.Connected(t, srv, dial...), calls}
}

// as is the context of a tenant's calls.
func as(ctx context.Context, tenant string) context.Context {
	if tenant == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "tenant", tenant)
}

func (s server) call(ctx context.Context, text string) error {
	return s.conn.Invoke(ctx, workMethod, wrapperspb.String(text), new(message))
}

// get is a call of a tenant.
func (s server) get(tenant string) error { return s.call(as(ctxT(s.t), tenant), "get") }

// later is call in a goroutine.
func (s server) later(ctx context.Context, text string) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- s.call(ctx, text) }()
	return ch
}

// refusal asserts an answer of the interceptors' own, and returns its RetryInfo.
func refusal(t testing.TB, err error, code codes.Code, reason string) (retry time.Duration) {
	t.Helper()
	require.Equal(t, code, status.Code(err), err)
	found := ""
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			require.Equal(t, limitgrpc.Domain, d.Domain)
			found = d.Reason
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration()
			require.GreaterOrEqual(t, retry, time.Second)
			require.LessOrEqual(t, retry, time.Minute)
		}
	}
	require.Equal(t, reason, found)
	return retry
}

func ok(context.Context, *message) (*message, error) { return wrapperspb.String("done"), nil }

func okStream(grpc.ServerStream) error { return nil }
