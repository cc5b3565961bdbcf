package limitgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestLimitOfAKey: what is above the limit of a key is refused; other keys, and calls that are not
// limited, are not concerned.
func TestLimitOfAKey(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, in.interceptors(options()), func(ctx context.Context, req *message) (*message, error) {
		if req.Value == "long" {
			close(entered)
			<-leave
		}
		return ok(ctx, req)
	}, okStream)
	first := s.later(as(ctxT(t), "acme"), "long")
	testkit.Closed(t, entered, "the handler runs")
	require.Positive(t, refusal(t, s.get("acme"), codes.ResourceExhausted, limitgrpc.ReasonKeyFull))
	require.NoError(t, s.get("other"))
	require.NoError(t, s.get(""))
	close(leave)
	require.NoError(t, testkit.Got(t, first, "the first call"))
	for range 50 { // a client with a limit of 1 that calls one after the other is never refused
		require.NoError(t, s.get("acme"))
	}
	in.f.NoKeys("/key/")

	require.NoError(t, in.Key("acme").SetLimit(ctxT(t), 0, concurrency.CreateLimit()))
	require.Zero(t, refusal(t, s.get("acme"), codes.ResourceExhausted, limitgrpc.ReasonKeyFull), "it is paused")
}

// A497: Single limits all keys together. Its full limit is the service's, and no quota of a client.
func TestOneSemaphore(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	sem, err := concurrency.NewSemaphore(in.sess, "slow", 1, nil)
	require.NoError(t, err)
	p, err := sem.TryAcquire(ctxT(t))
	require.NoError(t, err)
	u, err := limitgrpc.UnaryServerInterceptor(concurrency.Single(sem), options())
	require.NoError(t, err)
	s := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(u)}, ok, okStream)
	require.Positive(t, refusal(t, s.get("acme"), codes.Unavailable, limitgrpc.ReasonTotalFull))
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, s.get("acme"))
}

// TestStream: a stream holds its permit until its handler has returned, and sees its context.
func TestStream(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := serve(t, in.interceptors(options()), ok, func(ss grpc.ServerStream) error {
		p, held := limitgrpc.FromContext(ss.Context())
		if !held || p.Err() != nil {
			return errors.New("the context has no permit")
		}
		for {
			m := new(message)
			if err := ss.RecvMsg(m); err != nil {
				return nil //nolint:nilerr // the client has sent all
			}
			if err := ss.SendMsg(m); err != nil {
				return err
			}
		}
	})
	cs, err := s.conn.NewStream(as(ctxT(t), "acme"), watchStream, watchMethod)
	require.NoError(t, err)
	m := new(message)
	for i := range 3 {
		require.NoError(t, cs.SendMsg(wrapperspb.String(fmt.Sprint(i))))
		require.NoError(t, cs.RecvMsg(m))
		require.Equal(t, fmt.Sprint(i), m.Value)
	}
	refusal(t, s.get("acme"), codes.ResourceExhausted, limitgrpc.ReasonKeyFull)
	second, err := s.conn.NewStream(as(ctxT(t), "acme"), watchStream, watchMethod)
	require.NoError(t, err)
	refusal(t, second.RecvMsg(m), codes.ResourceExhausted, limitgrpc.ReasonKeyFull)
	require.NoError(t, cs.CloseSend())
	require.Error(t, cs.RecvMsg(m))
	require.NoError(t, s.get("acme"))

	unlimited, err := s.conn.NewStream(ctxT(t), watchStream, watchMethod)
	require.NoError(t, err)
	require.ErrorContains(t, unlimited.RecvMsg(m), "the context has no permit")
}

// TestClientLeaves: a client that cancels while its call waits frees its place, and gets the status
// of its own context.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	in.take("acme")
	s := serve(t, in.interceptors(options(wait(time.Hour))), ok, okStream)
	ctx, cancel := context.WithCancel(as(ctxT(t), "acme"))
	first := s.later(ctx, "get")
	in.until("acme", 1, 1)
	cancel()
	require.Equal(t, codes.Canceled, status.Code(testkit.Got(t, first, "the call ends")))
	in.until("acme", 1, 0)
	require.Zero(t, s.calls.Load())

	u, err := limitgrpc.UnaryServerInterceptor(in, limitgrpc.Options{Wait: time.Hour, Key: func(context.Context, string) (string, bool) { return "acme", true }})
	require.NoError(t, err)
	late, stop := context.WithTimeout(ctxT(t), 20*time.Millisecond)
	defer stop()
	_, err = u(late, nil, &grpc.UnaryServerInfo{FullMethod: workMethod}, nil)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
}

// TestWait: a call waits for its turn, and MaxWaiters refuses at once.
func TestWait(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	p := in.take("acme")
	s := serve(t, in.interceptors(options(wait(time.Hour), func(o *limitgrpc.Options) { o.MaxWaiters = 1 })), ok, okStream)
	first := s.later(as(ctxT(t), "acme"), "get")
	in.until("acme", 1, 1)
	refusal(t, s.get("acme"), codes.ResourceExhausted, limitgrpc.ReasonKeyFull)
	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, testkit.Got(t, first, "the call that waits"))
}

// TestLost: a handler that is stopped by the loss of its permit answers UNKNOWN; one that is done
// keeps its result. Both are reported.
func TestLost(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 1)
	s := serve(t, in.interceptors(options(rs.option, func(o *limitgrpc.Options) {
		o.Each = func(context.Context, string) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.ID("flow")}
		}
	})), func(ctx context.Context, req *message) (*message, error) {
		if err := in.Key("acme").Evict(ctxT(t), "flow", "test"); err != nil {
			return nil, err
		}
		<-ctx.Done()
		switch req.Value {
		case "stops":
			return nil, ctx.Err()
		case "stops with the cause":
			return nil, fmt.Errorf("work: %w", context.Cause(ctx))
		case "another reason":
			return nil, status.Error(codes.NotFound, "no such order")
		}
		return ok(ctx, req)
	}, okStream)
	for text, want := range map[string]codes.Code{
		"stops": codes.Unknown, "stops with the cause": codes.Unknown, "another reason": codes.NotFound, "is done": codes.OK,
	} {
		err := s.call(as(ctxT(t), "acme"), text)
		require.Equal(t, want, status.Code(err), text)
		if want == codes.Unknown {
			require.Zero(t, refusal(t, err, codes.Unknown, limitgrpc.ReasonLost))
		}
		require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrEvicted, text)
	}
	in.take("acme", concurrency.ID("flow"))
	require.NoError(t, in.Key("acme").SetLimit(ctxT(t), 2, concurrency.CreateLimit()))
	refusal(t, s.get("acme"), codes.Aborted, limitgrpc.ReasonHeld)
}

// TestPanics: a handler and a key function that panic leave no permit behind.
func TestPanics(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := serve(t, in.interceptors(options(func(o *limitgrpc.Options) {
		o.Key = func(ctx context.Context, method string) (string, bool) {
			if key, limited := byTenant(ctx, method); key != "bad" {
				return key, limited
			}
			panic("planned")
		}
	})), func(ctx context.Context, req *message) (*message, error) {
		if req.Value == "panic" {
			panic("planned")
		}
		return ok(ctx, req)
	}, okStream)
	require.Equal(t, codes.DataLoss, status.Code(s.get("bad")))
	require.Empty(t, in.f.Keys("tenants"))
	require.Equal(t, codes.DataLoss, status.Code(s.call(as(ctxT(t), "acme"), "panic")))
	require.NoError(t, s.get("acme"))
}

// TestHandlerNeverReturns: MaxHold gives the permit of a stuck handler to the next call.
func TestHandlerNeverReturns(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	entered, stuck := make(chan struct{}), make(chan struct{})
	s := serve(t, in.interceptors(options(wait(time.Hour), func(o *limitgrpc.Options) {
		o.Each = func(context.Context, string) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.MaxHold(50 * time.Millisecond)}
		}
	})), func(ctx context.Context, req *message) (*message, error) {
		if req.Value == "stuck" {
			close(entered)
			<-ctx.Done()
			<-stuck
			return nil, ctx.Err()
		}
		return ok(ctx, req)
	}, okStream)
	first := s.later(as(ctxT(t), "acme"), "stuck")
	testkit.Closed(t, entered, "the handler runs")
	require.NoError(t, s.get("acme"))
	close(stuck)
	refusal(t, testkit.Got(t, first, "the stuck call"), codes.Unknown, limitgrpc.ReasonLost)
}

// TestBadKeyAndNested: errors of the program are INTERNAL and reported.
func TestBadKeyAndNested(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 5)
	rs := make(reports, 1)
	s := serve(t, in.interceptors(options(rs.option)), ok, okStream)
	for _, tenant := range []string{"empty", strings.Repeat("x", 10<<10)} {
		refusal(t, s.get(tenant), codes.Internal, limitgrpc.ReasonInternal)
		require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrInvalid)
	}
	require.Empty(t, in.f.Keys("tenants"))
	require.Zero(t, s.calls.Load())

	u, err := limitgrpc.UnaryServerInterceptor(in, limitgrpc.Options{Key: func(context.Context, string) (string, bool) { return "acme", true }})
	require.NoError(t, err)
	info := &grpc.UnaryServerInfo{FullMethod: workMethod}
	_, err = u(ctxT(t), nil, info, func(ctx context.Context, req any) (any, error) {
		return u(ctx, req, info, func(context.Context, any) (any, error) { return "unreachable", nil })
	})
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	refusal(t, err, codes.Internal, limitgrpc.ReasonInternal)
}

// TestEnabled: the limit is switched off and on while the service runs.
func TestEnabled(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	in.take("acme")
	var enabled atomic.Bool
	s := serve(t, in.interceptors(options(func(o *limitgrpc.Options) { o.Enabled = enabled.Load })), ok, okStream)
	require.NoError(t, s.get("acme"))
	enabled.Store(true)
	refusal(t, s.get("acme"), codes.ResourceExhausted, limitgrpc.ReasonKeyFull)
	enabled.Store(false)
	require.NoError(t, s.get("acme"))
}

// TestOutage: without etcd, Closed answers UNAVAILABLE, and Open runs the call and reports it.
func TestOutage(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	rs := make(reports, 10)
	outage := func(policy limitgrpc.Outage) server {
		return serve(t, in.interceptors(options(wait(500*time.Millisecond), rs.option, func(o *limitgrpc.Options) {
			o.Outage, o.Patience = policy, time.Millisecond
		})), ok, okStream)
	}
	closed, open := outage(limitgrpc.Closed), outage(limitgrpc.Open)
	in.client.Cut()
	require.Positive(t, refusal(t, closed.get("acme"), codes.Unavailable, limitgrpc.ReasonUnavailable))
	require.ErrorIs(t, testkit.Got(t, rs, "the report"), concurrency.ErrUnavailable)
	require.NoError(t, open.get("acme"))
	require.ErrorContains(t, testkit.Got(t, rs, "the report"), "passed without a permit")
	in.client.Heal()
	p := in.take("acme")
	require.Eventually(t, func() bool { return status.Code(open.get("acme")) == codes.ResourceExhausted }, testkit.Soon, 50*time.Millisecond, "the limit is in force again")

	require.NoError(t, p.Release(ctxT(t)))
	require.NoError(t, in.sess.Close(ctxT(t)))
	refusal(t, open.get("acme"), codes.Unavailable, limitgrpc.ReasonUnavailable)
}

// TestNewRefusesBadOptions: each wrong option is named when the interceptor is made.
func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	for want, o := range map[string]limitgrpc.Options{
		"Options.Key is nil":                                    {},
		"Options.Wait -1s is not between":                       {Key: byTenant, Wait: -time.Second},
		"Options.Outage 7 is neither Closed nor Open nor Share": {Key: byTenant, Outage: 7},
		"the limiter is nil":                                    {Key: byTenant},
	} {
		lim := concurrency.Limiter(in)
		if strings.Contains(want, "limiter") {
			lim = nil
		}
		_, err1 := limitgrpc.UnaryServerInterceptor(lim, o)
		_, err2 := limitgrpc.StreamServerInterceptor(lim, o)
		_, err3 := limitgrpc.UnaryClientInterceptor(lim, o)
		_, err4 := limitgrpc.StreamClientInterceptor(lim, o)
		for i, err := range []error{err1, err2, err3, err4} {
			require.ErrorIs(t, err, concurrency.ErrInvalid)
			require.ErrorContains(t, err, "limitgrpc: new "+[]string{"unary server", "stream server", "unary client", "stream client"}[i]+" interceptor: "+want)
		}
	}
}
