package limitgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// supervised is a server with health checks and reflection alone, and a connection to it.
func supervised(t *testing.T, server []grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	srv := grpc.NewServer(server...)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	reflection.Register(srv)
	return testkit.Connected(t, srv, client...)
}

// supervise asks as an orchestrator and a debugger do.
func supervise(t *testing.T, conn *grpc.ClientConn) map[string]error {
	t.Helper()
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	got := map[string]error{}
	_, got["check"] = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	got["watch"] = err
	info, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err == nil {
		err = info.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	}
	if err == nil {
		_, err = info.Recv()
	}
	got["reflection"] = err
	return got
}

// TestSupervisionPasses: by default no limit refuses a health check or a call of reflection (A166 in
// internal/proof/tested-failures.md): not a rate alone, not a limit whose Key knows no tenant of them, on both sides,
// for unary calls and streams. Options.Methods can limit them.
func TestSupervisionPasses(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 0) // paused: no call gets a permit
	for name, o := range map[string]limitgrpc.Options{
		"a rate alone": func() limitgrpc.Options {
			o := limitgrpc.Options{}
			in.rate("scarce", scarce)(&o)
			return o
		}(),
		"a key for all":      {Key: func(context.Context, string) (string, bool) { return "acme", true }},
		"a key of no client": {Key: func(context.Context, string) (string, bool) { return "", true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lim concurrency.Limiter = in
			if o.Rate != nil {
				lim = nil
			}
			sides := func(o limitgrpc.Options) (server []grpc.ServerOption, client []grpc.DialOption) {
				us, err := limitgrpc.UnaryServerInterceptor(lim, o)
				require.NoError(t, err)
				ss, err := limitgrpc.StreamServerInterceptor(lim, o)
				require.NoError(t, err)
				uc, err := limitgrpc.UnaryClientInterceptor(lim, o)
				require.NoError(t, err)
				sc, err := limitgrpc.StreamClientInterceptor(lim, o)
				require.NoError(t, err)
				return []grpc.ServerOption{grpc.UnaryInterceptor(us), grpc.StreamInterceptor(ss)}, []grpc.DialOption{grpc.WithUnaryInterceptor(uc), grpc.WithStreamInterceptor(sc)}
			}
			server, client := sides(o)
			for range 3 {
				for side, conn := range map[string]*grpc.ClientConn{"server": supervised(t, server), "client": supervised(t, nil, client...)} {
					for call, err := range supervise(t, conn) {
						require.NoError(t, err, "%s, %s", side, call)
					}
				}
			}
			o.Methods = func(string) bool { return true }
			server, client = sides(o)
			for side, conn := range map[string]*grpc.ClientConn{"server": supervised(t, server), "client": supervised(t, nil, client...)} {
				for call, err := range supervise(t, conn) {
					require.Error(t, err, "%s, %s: it is limited", side, call)
				}
			}
		})
	}
}

// TestMethods: calls of a method that Options.Methods leaves out are not limited, and Key is not asked.
func TestMethods(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 0)
	asked := make(chan string, 10)
	s := serve(t, in.interceptors(limitgrpc.Options{
		Key:     func(_ context.Context, method string) (string, bool) { asked <- method; return "acme", true },
		Methods: func(method string) bool { return method != workMethod },
	}), ok, okStream)
	require.NoError(t, s.get("acme"))
	require.Empty(t, asked)
	cs, err := s.conn.NewStream(as(ctxT(t), "acme"), watchStream, watchMethod)
	require.NoError(t, err)
	refusal(t, cs.RecvMsg(new(message)), codes.ResourceExhausted, limitgrpc.ReasonKeyFull)
	require.Equal(t, watchMethod, <-asked)
}
