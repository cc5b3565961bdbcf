package limitgrpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
)

// UnaryServerInterceptor returns an interceptor that runs a handler under a permit of the call's key:
// see the package's comment. It returns concurrency.ErrInvalid if the limiter is nil and Options.Rate
// as well, or an option is missing or out of range. The interceptor is safe for concurrent use.
func UnaryServerInterceptor(lim concurrency.Limiter, opts Options) (grpc.UnaryServerInterceptor, error) {
	c, err := configure("unary server interceptor", lim, opts)
	if err != nil {
		return nil, err
	}
	return c.unary, nil
}

func (c *config) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	key, limited := c.limited(ctx, info.FullMethod)
	if !limited {
		return handler(ctx, req)
	}
	err = c.run(ctx, key, info.FullMethod, func(ctx context.Context) (err error) {
		resp, err = handler(ctx, req)
		return err
	})
	return resp, err
}

// StreamServerInterceptor is UnaryServerInterceptor for streams: the permit is held until the
// handler has returned. It returns concurrency.ErrInvalid where UnaryServerInterceptor does.
func StreamServerInterceptor(lim concurrency.Limiter, opts Options) (grpc.StreamServerInterceptor, error) {
	c, err := configure("stream server interceptor", lim, opts)
	if err != nil {
		return nil, err
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		key, limited := c.limited(ss.Context(), info.FullMethod)
		if !limited {
			return handler(srv, ss)
		}
		return c.run(ss.Context(), key, info.FullMethod, func(ctx context.Context) error {
			return handler(srv, &serverStream{ss, ctx})
		})
	}, nil
}

// serverStream is a stream with the context of its permit.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

// FromContext returns the permit under which a call runs, in a handler behind an interceptor: that of
// the innermost one. It returns false for a call that is not limited, and for one that runs without a
// permit in an outage. Under Share the permit is found once the request has got it.
func FromContext(ctx context.Context) (*concurrency.Permit, bool) {
	return middleware.FromContext(ctx)
}
