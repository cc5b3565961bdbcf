package limitgrpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// flow gives each call the ID by which a test evicts it.
func flow(o *limitgrpc.Options) {
	o.Each = func(context.Context, string) []concurrency.AcquireOption {
		return []concurrency.AcquireOption{concurrency.ID("flow")}
	}
}

// sends are the ways in which a client sends, in a goroutine; the channel has the error.
var sends = map[string]func(context.Context, server) <-chan error{
	"unary": func(ctx context.Context, s server) <-chan error { return s.later(ctx, "get") },
	"stream": func(ctx context.Context, s server) <-chan error {
		ch := make(chan error, 1)
		go func() {
			cs, err := s.conn.NewStream(ctx, watchStream, watchMethod)
			if err == nil {
				err = cs.RecvMsg(new(message))
			}
			ch <- err
		}()
		return ch
	},
}

// sessionCloses closes the session of an instance and waits for no permit.
func sessionCloses(in instance) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = in.sess.Close(ended)
}

func evicts(in instance) { _ = in.Key("acme").Evict(ctxT(in.f.T), "flow", "test") }

// TestNotSent: whatever ends a call before it was sent, its error matches ErrNotSent and the reason, and nothing has arrived.
func TestNotSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason error
		code   codes.Code
		open   bool                                    // the limit has a permit left
		set    func(instance) func(*limitgrpc.Options) // before the interceptors are made
		before func(instance)                          // before the call
		queued func(instance)                          // while it waits
		leaves bool                                    // the caller, while it waits
		text   string
	}{
		"full":      {reason: concurrency.ErrFull, code: codes.ResourceExhausted, text: "too many calls of this key are running"},
		"rate":      {reason: concurrency.ErrRateExceeded, code: codes.Unavailable, open: true, set: func(in instance) func(*limitgrpc.Options) { return in.rate("begin", scarce) }},
		"late":      {reason: context.DeadlineExceeded, code: codes.DeadlineExceeded, set: func(instance) func(*limitgrpc.Options) { return wait(time.Hour) }, text: "context deadline exceeded"},
		"no answer": {reason: concurrency.ErrUnavailable, code: codes.Unavailable, open: true, set: func(instance) func(*limitgrpc.Options) { return wait(500 * time.Millisecond) }, before: func(in instance) { in.client.Cut() }},
		"session":   {reason: concurrency.ErrClosed, code: codes.Unavailable, open: true, before: sessionCloses},
		"no key": {reason: concurrency.ErrInvalid, code: codes.Internal, open: true, set: func(instance) func(*limitgrpc.Options) {
			return func(o *limitgrpc.Options) { o.Key = func(context.Context, string) (string, bool) { return "", true } }
		}},
		"caller leaves":            {reason: context.Canceled, code: codes.Canceled, leaves: true},
		"evicted while it waits":   {reason: concurrency.ErrEvicted, code: codes.Unavailable, queued: evicts, text: "the call has lost its place in the queue, and has not begun"},
		"session closed meanwhile": {reason: concurrency.ErrClosed, code: codes.Unavailable, queued: sessionCloses},
	} {
		for kind, send := range sends {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				in := newInstance(t, 1)
				if !c.open {
					in.take("acme")
				}
				set := func(*limitgrpc.Options) {}
				if c.set != nil {
					set = c.set(in)
				}
				waits := c.queued != nil || c.leaves
				s := serve(t, nil, ok, okStream, in.sending(flow, func(o *limitgrpc.Options) {
					if waits {
						o.Wait = time.Hour
					}
				}, set)...)
				if c.before != nil {
					c.before(in)
				}
				ctx, cancel := context.WithCancel(of(ctxT(t), "acme"))
				defer cancel()
				if c.reason == context.DeadlineExceeded {
					late, stop := context.WithTimeout(ctx, 300*time.Millisecond)
					defer stop()
					ctx = late
				}
				end := send(ctx, s)
				if waits {
					in.until("acme", 1, 1)
				}
				if c.queued != nil {
					c.queued(in)
				}
				if c.leaves {
					cancel()
				}
				err := testkit.Got(t, end, "the call ends")
				require.ErrorIs(t, err, limitgrpc.ErrNotSent)
				require.ErrorIs(t, err, c.reason)
				require.Equal(t, c.code, status.Code(err))
				require.ErrorContains(t, err, "desc = concurrency: not sent: "+c.text)
				require.NotContains(t, err.Error(), "may have taken effect")
				require.Zero(t, s.calls.Load())
			})
		}
	}
}

// sending is dialing with a Key that options may replace.
func (in instance) sending(change ...func(*limitgrpc.Options)) []grpc.DialOption {
	in.f.T.Helper()
	o := limitgrpc.Options{Key: outgoing}
	for _, c := range change {
		c(&o)
	}
	u, err := limitgrpc.UnaryClientInterceptor(in, o)
	require.NoError(in.f.T, err)
	s, err := limitgrpc.StreamClientInterceptor(in, o)
	require.NoError(in.f.T, err)
	return []grpc.DialOption{grpc.WithUnaryInterceptor(u), grpc.WithStreamInterceptor(s)}
}

// TestSent: whatever ends a call after it was sent, its error does not match ErrNotSent.
func TestSent(t *testing.T) {
	t.Parallel()
	failed := status.Error(codes.NotFound, "planned")
	for name, c := range map[string]struct {
		code   codes.Code
		fails  bool
		late   bool
		leaves bool
		during func(instance)
	}{
		"the partner fails": {code: codes.NotFound, fails: true},
		"caller leaves":     {code: codes.Canceled, leaves: true},
		"late":              {code: codes.DeadlineExceeded, late: true},
		"permit lost":       {code: codes.Unknown, during: evicts},
		"session closed":    {code: codes.Unknown, during: sessionCloses},
	} {
		for kind, send := range sends {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				in := newInstance(t, 1)
				arrived := make(chan struct{}, 1)
				work := func(ctx context.Context) error {
					arrived <- struct{}{}
					if c.fails {
						return failed
					}
					<-ctx.Done()
					return ctx.Err()
				}
				s := serve(t, nil, func(ctx context.Context, _ *message) (*message, error) { return nil, work(ctx) },
					func(ss grpc.ServerStream) error { return work(ss.Context()) }, in.sending(flow)...)
				ctx, cancel := context.WithCancel(of(ctxT(t), "acme"))
				defer cancel()
				if c.late {
					ctx, cancel = testkit.Deadline(ctx)
				}
				end := send(ctx, s)
				testkit.Got(t, arrived, "the call arrives")
				if c.during != nil {
					c.during(in)
				}
				if c.leaves || c.late {
					cancel()
				}
				err := testkit.Got(t, end, "the call ends")
				require.Equal(t, c.code, status.Code(err), err)
				require.NotErrorIs(t, err, limitgrpc.ErrNotSent)
			})
		}
	}
}

// TestNotSentByTheStreamer: an error of what opens the stream is its own.
func TestNotSentByTheStreamer(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	i, err := limitgrpc.StreamClientInterceptor(in, limitgrpc.Options{Key: outgoing})
	require.NoError(t, err)
	failed := errors.New("planned")
	_, err = i(of(ctxT(t), "acme"), watchStream, nil, watchMethod, func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		return nil, failed
	})
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, limitgrpc.ErrNotSent)
}
