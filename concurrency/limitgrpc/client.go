package limitgrpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/etcdkit/etcdkit/concurrency"
)

// UnaryClientInterceptor returns an interceptor that sends each call under a permit of its key. A
// call that gets none fails with a status as a server's interceptor returns it;
// errors.Is and errors.As also find ErrNotSent and the error of concurrency.Semaphore.Acquire, such as a
// *concurrency.FullError, or of concurrency.RateLimiter.Allow, such as a
// *concurrency.RateExceededError. It returns concurrency.ErrInvalid if the limiter is nil and
// Options.Rate as well, or an option is missing or out of range. The interceptor is safe for
// concurrent use.
//
// gRPC may send a call several times under the same permit and token: as often as the retry policy of a service config
// says, and again if the server has not seen it. grpc.WithDisableRetry leaves out the policy.
func UnaryClientInterceptor(lim concurrency.Limiter, opts Options) (grpc.UnaryClientInterceptor, error) {
	c, err := configure("unary client interceptor", lim, opts)
	if err != nil {
		return nil, err
	}
	c.sends = true
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		key, limited := c.limited(ctx, method)
		if !limited {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		return c.run(ctx, key, method, func(ctx context.Context) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		})
	}, nil
}

// StreamClientInterceptor is UnaryClientInterceptor for streams. The permit is held until RecvMsg has
// returned an error, io.EOF included, or, if the server sends one message only, until that was
// received; until SendMsg or Header has returned an error other than io.EOF, or Header neither a header nor an
// error; and at most until the call's context ends. These are also what ends the stream itself: a caller that does
// none of them leaks both. ReportError is called when a stream has held its permit for 5 minutes, at most once an hour,
// with the number of such streams; concurrency.MaxHold, in Options.Each, bounds that time. It returns concurrency.ErrInvalid where
// UnaryClientInterceptor does.
func StreamClientInterceptor(lim concurrency.Limiter, opts Options) (grpc.StreamClientInterceptor, error) {
	c, err := configure("stream client interceptor", lim, opts)
	if err != nil {
		return nil, err
	}
	c.sends = true
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		key, limited := c.limited(ctx, method)
		if !limited {
			return streamer(ctx, desc, cc, method, opts...)
		}
		out, err := c.shared.Acquire(ctx, key, c.each(ctx, method), func(err error) { c.ReportError(ctx, method, err) })
		if err != nil {
			return nil, c.refuse(ctx, key, method, false, err)
		}
		begun := false
		defer func() {
			if !begun {
				out.End() // it has failed, or panicked
			}
		}()
		lost := func(err error) error {
			if cause := context.Cause(out.Context); interrupted(err) && errors.Is(cause, concurrency.ErrLost) {
				return c.answer(ctx, c.shared.Refuse(ctx, key, true, cause), true, cause) // End reports it
			}
			return err
		}
		stream, err := streamer(out.Context, desc, cc, method, opts...)
		if err != nil {
			return nil, lost(err)
		}
		begun = true
		return &clientStream{stream, desc.ServerStreams, out.End, lost}, nil
	}, nil
}

// clientStream is a stream whose permit is held until its end.
type clientStream struct {
	grpc.ClientStream
	many  bool // the server sends any number of messages
	leave func()
	lost  func(error) error // the error, or that the permit was lost
}

// RecvMsg receives a message. It returns the stream's error, or that its permit was lost.
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.many {
		return nil
	}
	return s.end(err)
}

// SendMsg sends a message. It returns the stream's error, or that its permit was lost. After io.EOF the stream has not
// ended: RecvMsg has its status.
func (s *clientStream) SendMsg(m any) error { return s.unlessOpen(s.ClientStream.SendMsg(m)) }

// Header waits for the header. It returns the stream's error, or that its permit was lost. Without a header and an error
// the stream has ended, as grpc.ClientStream says, and RecvMsg has its status.
func (s *clientStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	if header == nil && err == nil {
		s.leave()
	}
	return header, s.unlessOpen(err)
}

// unlessOpen is end, unless the error leaves the stream open, as gRPC says of grpc.ClientConn.NewStream.
func (s *clientStream) unlessOpen(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.end(err)
}

// end releases the permit of a stream that has ended with that error, and returns it, or that the permit was lost.
func (s *clientStream) end(err error) error {
	defer s.leave()
	return s.lost(err)
}
