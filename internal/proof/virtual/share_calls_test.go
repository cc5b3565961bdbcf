package virtual

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
)

// serverStream is the stream of a call.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

// TestShareOfCalls: without etcd, unary calls and streams of a process have one share of the limit
// together, and work under it gets a permit when etcd answers again.
func TestShareOfCalls(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s, _ := sharing(on[0], 1)
		o := limitgrpc.Options{
			Key:  func(context.Context, string) (string, bool) { return "acme", true },
			Wait: time.Second, Outage: limitgrpc.Share,
		}
		intercept, err := limitgrpc.UnaryServerInterceptor(s.lim, o)
		require.NoError(t, err)
		interceptStream, err := limitgrpc.StreamServerInterceptor(s.lim, o)
		require.NoError(t, err)
		unary := func(work func(context.Context)) error {
			_, err := intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/test.Work/Work"}, func(ctx context.Context, _ any) (any, error) {
				work(ctx)
				return nil, nil
			})
			return err
		}
		stream := func(work func(context.Context)) error {
			info := &grpc.StreamServerInfo{FullMethod: "/test.Work/Watch", IsServerStream: true}
			return interceptStream(nil, serverStream{ctx: t.Context()}, info, func(_ any, s grpc.ServerStream) error {
				work(s.Context())
				return nil
			})
		}
		none := func(context.Context) {}
		require.NoError(t, unary(none))
		for _, stays := range []func(func(context.Context)) error{unary, stream} {
			time.Sleep(time.Minute)
			s.client.Refuse()
			time.Sleep(time.Minute)
			require.NoError(t, unary(none), "it runs under the share")
			require.NoError(t, stream(none), "it runs under the share")
			leave, permitted, ended := make(chan struct{}), false, make(chan error, 1)
			finish := sync.OnceFunc(func() { close(leave) })
			defer finish()
			go func() {
				ended <- stays(func(ctx context.Context) {
					<-leave
					_, permitted = limitgrpc.FromContext(ctx)
				})
			}()
			time.Sleep(2 * time.Second)
			s.running(1)
			for _, call := range []func(func(context.Context)) error{unary, stream} {
				err := call(none)
				require.Equal(t, codes.Unavailable, grpcstatus.Code(err), err)
				require.Equal(t, limitgrpc.ReasonUnavailable, reason(err))
			}
			s.healed()
			s.running(0)
			s.holders(1)
			finish()
			require.NoError(t, came(t, ended, "the call ends"))
			require.True(t, permitted)
			s.holders(0)
			require.NoError(t, unary(none))
		}
	})
}

// reason is the reason in a refusal.
func reason(err error) string {
	for _, d := range grpcstatus.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}
