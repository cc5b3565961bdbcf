package idemgrpc_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// retrying is a service config that has gRPC repeat a call by itself.
const retrying = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

// losing is a service without keys. It charges with each call, and then has no answer.
type losing struct {
	mu      sync.Mutex
	charges int
	breaks  bool // the connection breaks, in place of UNAVAILABLE
	conn    net.Conn
	addr    string
}

func newLosing(t *testing.T) *losing {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &losing{addr: lis.Addr().String()}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		if err := ss.RecvMsg(new(structpb.Struct)); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.charges++
		if p.breaks {
			_ = p.conn.Close()
			<-ss.Context().Done()
		}
		return status.Error(codes.Unavailable, "after the charge")
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return p
}

// dial notes the connection.
func (p *losing) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	p.conn = conn
	return conn, err
}

// gRPC's own retry policy repeats a call within one attempt (A230 in internal/proof/tested-failures.md): a service without
// keys charged twice under Refuse, and the second answer was recorded. The interceptor has it sent once.
func TestCallIsSentOnceUnderRefuse(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	none := idemgrpc.UnaryClientInterceptor(func(string) bool { return false })
	for _, breaks := range []bool{false, true} {
		for name, c := range map[string]struct {
			intercept grpc.UnaryClientInterceptor
			with      func(context.Context) context.Context
			refuse    int // charges
		}{
			"a derived key": {idemgrpc.UnaryClientInterceptor(nil), nil, 1},
			"WithKey": {idemgrpc.UnaryClientInterceptor(nil), func(ctx context.Context) context.Context {
				return idemgrpc.WithKey(ctx, "mine")
			}, 1},
			"a key by hand, of another method": {none, func(ctx context.Context) context.Context {
				return metadata.AppendToOutgoingContext(ctx, "idempotency-key", "mine")
			}, 1},
			"no key": {none, nil, 2},
		} {
			for policy, want := range map[idempotency.LostPolicy]int{idempotency.Refuse: c.refuse, idempotency.TakeOver: 2} {
				p := newLosing(t)
				p.breaks = breaks
				conn, err := grpc.NewClient("passthrough:///pay", grpc.WithContextDialer(p.dial), grpc.WithUnaryInterceptor(c.intercept),
					grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(retrying))
				require.NoError(t, err)
				a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: name}, nil, idempotency.OnLost(policy))
				require.NoError(t, err)
				ctx := a.Context()
				if c.with != nil {
					ctx = c.with(ctx)
				}
				err = conn.Invoke(ctx, payMethod, message(t, "cents", 1), new(structpb.Struct))
				require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
				require.NoError(t, conn.Close())
				p.mu.Lock()
				require.Equal(t, want, p.charges, "%s, policy %v, breaks %v", name, policy, breaks)
				p.mu.Unlock()
				require.NoError(t, a.Release(ctxT(t)))
			}
		}
	}
}

// Within an attempt, WithNewKey gives no random key (A231): that of the attempt that takes over is the same.
func TestNewKeyWithinAnAttempt(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	conn, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	attempt := func() (keys []string) {
		a, _, err := in.Begin(idemgrpc.WithNewKey(ctxT(t)), idempotency.Key{Op: "pay", ID: "k"}, nil)
		require.NoError(t, err)
		one := idemgrpc.WithNewKey(a.Context())
		for _, ctx := range []context.Context{a.Context(), a.Context(), one, one, idemgrpc.WithKey(one, "mine")} {
			err := idemgrpc.UnaryClientInterceptor(nil)(ctx, payMethod, message(t), nil, conn, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				md, _ := metadata.FromOutgoingContext(ctx)
				keys = append(keys, md.Get("idempotency-key")...)
				return nil
			})
			require.NoError(t, err)
		}
		require.NoError(t, a.Abandon(ctxT(t)))
		return keys
	}
	first := attempt()
	require.Len(t, first, 5)
	require.NotEqual(t, first[0], first[1])
	require.NotContains(t, first[:2], first[2])
	require.Equal(t, first[2], first[3], "one context, one key")
	require.Equal(t, "mine", first[4])
	require.Equal(t, first, attempt())
}
