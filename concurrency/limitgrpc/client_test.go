package limitgrpc_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

type tenantKey struct{}

// outgoing is the Key of a client: the tenant of the context.
func outgoing(ctx context.Context, _ string) (string, bool) {
	tenant, limited := ctx.Value(tenantKey{}).(string)
	return tenant, limited
}

func of(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// dialing limits a client.
func (in instance) dialing(change ...func(*limitgrpc.Options)) []grpc.DialOption {
	in.f.T.Helper()
	o := options(change...)
	o.Key = outgoing
	u, err := limitgrpc.UnaryClientInterceptor(in, o)
	require.NoError(in.f.T, err)
	s, err := limitgrpc.StreamClientInterceptor(in, o)
	require.NoError(in.f.T, err)
	return []grpc.DialOption{grpc.WithUnaryInterceptor(u), grpc.WithStreamInterceptor(s)}
}

// TestClient: an outgoing call holds its permit while it runs; what is above the limit is not sent.
func TestClient(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, nil, func(ctx context.Context, req *message) (*message, error) {
		if req.Value == "long" {
			close(entered)
			<-leave
		}
		return ok(ctx, req)
	}, okStream, in.dialing()...)
	ctx := of(ctxT(t), "acme")
	first := s.later(ctx, "long")
	testkit.Closed(t, entered, "the call runs")
	err := s.call(ctx, "get")
	require.Positive(t, refusal(t, err, codes.ResourceExhausted, limitgrpc.ReasonKeyFull))
	var full *concurrency.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, 1, full.Limit)
	_, err = s.conn.NewStream(ctx, watchStream, watchMethod)
	require.ErrorIs(t, err, concurrency.ErrFull)
	require.NoError(t, s.call(of(ctxT(t), "other"), "get"))
	require.NoError(t, s.call(ctxT(t), "get"), "it is not limited")
	require.EqualValues(t, 3, s.calls.Load())
	close(leave)
	require.NoError(t, testkit.Got(t, first, "the first call"))
	for range 20 {
		require.NoError(t, s.call(ctx, "get"))
	}
	require.ErrorIs(t, s.call(of(ctxT(t), ""), "get"), concurrency.ErrInvalid)
}

// TestClientStream: an outgoing stream holds its permit until it has ended, in each way in which a
// stream ends.
func TestClientStream(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, grpc.ClientStream, context.CancelFunc){
		"read to its end": func(t *testing.T, cs grpc.ClientStream, _ context.CancelFunc) {
			require.NoError(t, cs.CloseSend())
			require.ErrorIs(t, cs.RecvMsg(new(message)), io.EOF)
		},
		"fails": func(t *testing.T, cs grpc.ClientStream, _ context.CancelFunc) {
			require.NoError(t, cs.SendMsg(wrapperspb.String("fail")))
			require.Equal(t, codes.NotFound, status.Code(cs.RecvMsg(new(message))))
		},
		"canceled": func(_ *testing.T, _ grpc.ClientStream, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			s := serve(t, nil, ok, echo, in.dialing()...)
			ctx, cancel := context.WithCancel(of(ctxT(t), "acme"))
			defer cancel()
			cs, err := s.conn.NewStream(ctx, watchStream, watchMethod)
			require.NoError(t, err)
			m := new(message)
			require.NoError(t, cs.SendMsg(wrapperspb.String("hello")))
			require.NoError(t, cs.RecvMsg(m))
			require.Equal(t, "hello", m.Value)
			in.until("acme", 1, 0)
			end(t, cs, cancel)
			in.until("acme", 0, 0)
		})
	}
}

// echo returns each message until the client has sent all, or one that says fail.
func echo(ss grpc.ServerStream) error {
	for {
		m := new(message)
		switch err := ss.RecvMsg(m); {
		case err != nil:
			return nil //nolint:nilerr // the client has sent all
		case m.Value == "fail":
			return status.Error(codes.NotFound, "planned")
		case ss.SendMsg(m) != nil:
			return nil //nolint:nilerr // the client has gone
		}
	}
}

// TestClientStreamWithOneAnswer: a stream to which the server sends one message has ended with that.
func TestClientStreamWithOneAnswer(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := serve(t, nil, ok, func(ss grpc.ServerStream) error { return ss.SendMsg(wrapperspb.String("sum")) }, in.dialing()...)
	for range 3 {
		cs, err := s.conn.NewStream(of(ctxT(t), "acme"), sumStream, sumMethod)
		require.NoError(t, err)
		require.NoError(t, cs.CloseSend())
		m := new(message)
		require.NoError(t, cs.RecvMsg(m))
		require.Equal(t, "sum", m.Value)
	}
	in.f.NoKeys("/key/")
}

// TestClientLost: calls and streams whose permit is lost end, and their errors say why.
func TestClientLost(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 2)
	begun := make(chan struct{})
	s := serve(t, nil, func(ctx context.Context, _ *message) (*message, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}, echo, in.dialing(rs.option, func(o *limitgrpc.Options) {
		o.Each = func(context.Context, string) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.ID("flow")}
		}
	})...)
	ctx := of(ctxT(t), "acme")
	first := s.later(ctx, "long")
	testkit.Closed(t, begun, "the call is sent")
	require.NoError(t, in.Key("acme").Evict(ctx, "flow", "test"))
	err := testkit.Got(t, first, "the call ends")
	refusal(t, err, codes.Unknown, limitgrpc.ReasonLost)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrEvicted)

	in.until("acme", 0, 0)
	cs, err := s.conn.NewStream(ctx, watchStream, watchMethod)
	require.NoError(t, err)
	require.NoError(t, in.Key("acme").Evict(ctx, "flow", "test"))
	err = cs.RecvMsg(new(message))
	refusal(t, err, codes.Unknown, limitgrpc.ReasonLost)
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrEvicted)
	require.Empty(t, rs)
}

// TestClientOutage: without etcd, Closed fails the call, and Open sends it.
func TestClientOutage(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 4)
	outage := func(policy limitgrpc.Outage) server {
		return serve(t, nil, ok, echo, in.dialing(wait(500*time.Millisecond), rs.option, func(o *limitgrpc.Options) {
			o.Outage, o.Patience = policy, time.Millisecond
		})...)
	}
	closed, open := outage(limitgrpc.Closed), outage(limitgrpc.Open)
	in.client.Cut()
	ctx := of(ctxT(t), "acme")
	require.ErrorIs(t, closed.call(ctx, "get"), concurrency.ErrUnavailable)
	require.Error(t, testkit.Got(t, rs, "the report"))
	require.NoError(t, open.call(ctx, "get"))
	require.ErrorContains(t, testkit.Got(t, rs, "the report"), "passed without a permit")
	cs, err := open.conn.NewStream(ctx, watchStream, watchMethod)
	require.NoError(t, err)
	require.ErrorContains(t, testkit.Got(t, rs, "the report"), "passed without a permit")
	require.NoError(t, cs.CloseSend())
	require.ErrorIs(t, cs.RecvMsg(new(message)), io.EOF)
	in.client.Heal()
}

// Each tenant runs at most two calls at a time, in all processes together; a call waits for its turn
// up to a second.
func Example() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil) // in a program: clientv3.New
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	sess, err := concurrency.NewSession(ctx, etcd.Client(), "shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)
	lim, err := concurrency.NewKeyedLimiter(sess, "tenants", 2, nil)
	if err != nil {
		log.Fatal(err)
	}
	opts := limitgrpc.Options{
		Key:  func(context.Context, string) (string, bool) { return "acme", true }, // yours: the tenant
		Wait: time.Second,
		// The service of this example is a health check, which passes by default.
		Methods: func(string) bool { return true },
	}
	unary, err := limitgrpc.UnaryServerInterceptor(lim, opts)
	if err != nil {
		log.Fatal(err)
	}
	stream, err := limitgrpc.StreamServerInterceptor(lim, opts)
	if err != nil {
		log.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream))
	healthgrpc.RegisterHealthServer(srv, health.NewServer()) // in a program: your services
	lis := bufconn.Listen(1 << 20)
	go func() { _ = srv.Serve(lis) }()
	defer srv.Stop()

	conn, err := grpc.NewClient("passthrough:///shop", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	check := func() codes.Code {
		_, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
		return status.Code(err)
	}
	fmt.Println(check())
	if err := lim.Key("acme").SetLimit(ctx, 0, concurrency.CreateLimit()); err != nil { // pauses the tenant
		log.Fatal(err)
	}
	fmt.Println(check())
	// Output:
	// OK
	// ResourceExhausted
}

// TestClientStreamThatCannotSend: a message that cannot be sent ends its stream, and its permit with it (A259 in
// internal/proof/tested-failures.md).
func TestClientStreamThatCannotSend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		desc   *grpc.StreamDesc
		method string
	}{{watchStream, watchMethod}, {sumStream, sumMethod}} {
		in := newInstance(t, 1)
		s := serve(t, nil, ok, func(ss grpc.ServerStream) error { <-ss.Context().Done(); return nil }, in.dialing()...)
		ctx, cancel := context.WithCancel(of(ctxT(t), "acme"))
		cs, err := s.conn.NewStream(ctx, c.desc, c.method)
		require.NoError(t, err)
		require.NoError(t, cs.SendMsg(wrapperspb.String("hello")))
		in.until("acme", 1, 0)
		require.Equal(t, codes.Internal, status.Code(cs.SendMsg("no message of protobuf")))
		in.until("acme", 0, 0)
		cancel()
	}
}

// TestClientStreamWithoutAHeader: a stream that the server ends before it has sent a header has ended when Header returns
// neither a header nor an error, and its permit with it.
func TestClientStreamWithoutAHeader(t *testing.T) {
	t.Parallel()
	for want, end := range map[codes.Code]error{codes.NotFound: status.Error(codes.NotFound, "planned"), codes.OK: nil} {
		in := newInstance(t, 1)
		s := serve(t, nil, ok, func(grpc.ServerStream) error { return end }, in.dialing()...)
		ctx, cancel := context.WithCancel(of(t.Context(), "acme"))
		cs, err := s.conn.NewStream(ctx, watchStream, watchMethod)
		require.NoError(t, err)
		header, err := cs.Header()
		require.NoError(t, err)
		require.Nil(t, header)
		in.until("acme", 0, 0)
		err = cs.RecvMsg(new(message))
		if want == codes.OK {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.Equal(t, want, status.Code(err))
		}
		cancel()
	}
}

// A595: a call that gRPC repeats by its retry policy is one call, under one permit and one token: the server sees more calls
// than the rate lets begin, as UnaryClientInterceptor says.
func TestRetriesOfGRPC(t *testing.T) {
	t.Parallel()
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	for sends, retries := range map[int64]grpc.DialOption{3: grpc.WithDefaultServiceConfig(policy), 1: grpc.WithDisableRetry()} {
		in := newInstance(t, 1)
		s := serve(t, nil, func(context.Context, *message) (*message, error) {
			return nil, status.Error(codes.Unavailable, "planned")
		}, nil,
			append(in.dialing(), grpc.WithDefaultServiceConfig(policy), retries)...)
		require.Equal(t, codes.Unavailable, status.Code(s.call(of(ctxT(t), "acme"), "get")))
		require.Equal(t, sends, s.calls.Load())
		in.until("acme", 0, 0)
	}
}
