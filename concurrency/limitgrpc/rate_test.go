package limitgrpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Of the first rate each call gets a token soon; of the second, once it is spent, none does within a test, but one comes
// within a Wait of a day.
var (
	ample  = concurrency.Rate{PerSecond: 1000, Burst: 100}
	scarce = concurrency.Rate{PerSecond: 1e-4, Burst: 1}
)

// rate is an option: a rate limiter of that name, on the session of an instance.
func (in instance) rate(name string, r concurrency.Rate) func(*limitgrpc.Options) {
	in.f.T.Helper()
	l, err := concurrency.NewRateLimiter(in.sess, name, r, nil)
	require.NoError(in.f.T, err)
	if r == scarce { // take the token that it has, if it has one
		ctx, cancel := context.WithTimeout(ctxT(in.f.T), testkit.Soon)
		defer cancel()
		_ = l.Wait(ctx)
	}
	return func(o *limitgrpc.Options) { o.Rate = l }
}

// TestRate: on both sides, for unary calls and streams, beside a limiter and alone: a call that gets
// a token runs; one that gets none ends with UNAVAILABLE, does not run, and releases its permit; and
// a rate that is not the stored one is INTERNAL.
func TestRate(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 2)
	atServer := func(lim concurrency.Limiter, o limitgrpc.Options) server {
		u, err := limitgrpc.UnaryServerInterceptor(lim, o)
		require.NoError(t, err)
		s, err := limitgrpc.StreamServerInterceptor(lim, o)
		require.NoError(t, err)
		return serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(u), grpc.StreamInterceptor(s)}, ok, okStream)
	}
	atClient := func(lim concurrency.Limiter, o limitgrpc.Options) server {
		o.Key = outgoing
		u, err := limitgrpc.UnaryClientInterceptor(lim, o)
		require.NoError(t, err)
		s, err := limitgrpc.StreamClientInterceptor(lim, o)
		require.NoError(t, err)
		return serve(t, nil, ok, okStream, grpc.WithUnaryInterceptor(u), grpc.WithStreamInterceptor(s))
	}
	for side, at := range map[string]func(concurrency.Limiter, limitgrpc.Options) server{"server": atServer, "client": atClient} {
		for name, lim := range map[string]concurrency.Limiter{"alone": nil, "with a limiter": in} {
			t.Run(side+" "+name, func(t *testing.T) {
				ctx := of(as(ctxT(t), "acme"), "acme")
				calls := func(s server) map[string]error {
					cs, err := s.conn.NewStream(ctx, watchStream, watchMethod)
					if err == nil {
						err = cs.RecvMsg(new(message))
					}
					return map[string]error{"unary": s.call(ctx, "get"), "stream": err}
				}
				s := at(lim, options(in.rate("calls", ample), wait(testkit.Soon)))
				require.NoError(t, s.call(ctx, "get"))
				require.ErrorContains(t, calls(s)["stream"], "EOF")
				require.EqualValues(t, 3, s.calls.Load())

				s = at(lim, options(in.rate("scarce", scarce)))
				for kind, err := range calls(s) {
					require.Positive(t, refusal(t, err, codes.Unavailable, limitgrpc.ReasonRateExceeded), kind)
					if side == "client" {
						require.ErrorIs(t, err, concurrency.ErrRateExceeded, kind)
					}
				}
				require.Zero(t, s.calls.Load())
				require.NoError(t, s.call(ctxT(t), "get"), "it is not limited")

				reported := make(reports, 2)
				s = at(lim, options(in.rate("calls", scarce), wait(testkit.Soon), reported.option))
				for kind, err := range calls(s) {
					refusal(t, err, codes.Internal, limitgrpc.ReasonInternal)
					require.ErrorIs(t, testkit.Got(t, reported, kind), concurrency.ErrLimitMismatch)
				}
				require.Zero(t, s.calls.Load())
				in.until("acme", 0, 0)
			})
		}
	}
}

// TestRateUnderPermit: a call waits for its token under its permit, and releases it when it leaves.
func TestRateUnderPermit(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := serve(t, in.interceptors(options(in.rate("scarce", scarce), wait(24*time.Hour))), ok, okStream)
	ctx, leave := context.WithCancel(as(context.WithoutCancel(ctxT(t)), "acme")) // no deadline, which the call could not meet
	call := s.later(ctx, "get")
	in.until("acme", 1, 0)
	leave()
	require.Error(t, testkit.Got(t, call, "it has left"))
	in.until("acme", 0, 0)

	c := serve(t, nil, ok, okStream, in.dialing(in.rate("scarce", scarce), wait(2*time.Second))...)
	_, err := c.conn.NewStream(of(ctxT(t), "acme"), watchStream, watchMethod)
	refusal(t, err, codes.Unavailable, limitgrpc.ReasonRateExceeded)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "the call's own context has not ended")
	in.until("acme", 0, 0)
	require.Zero(t, s.calls.Load()+c.calls.Load())
}

// TestRateAloneNeedsNoKey: without a limiter Options.Key may be nil: all calls are limited. What
// has no meaning then is an error.
func TestRateAloneNeedsNoKey(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	o := limitgrpc.Options{}
	in.rate("scarce", scarce)(&o)
	u, err := limitgrpc.UnaryServerInterceptor(nil, o)
	require.NoError(t, err)
	s := serve(t, []grpc.ServerOption{grpc.UnaryInterceptor(u)}, ok, okStream)
	refusal(t, s.call(ctxT(t), "get"), codes.Unavailable, limitgrpc.ReasonRateExceeded)

	for want, change := range map[string]func(*limitgrpc.Options){
		"Options.MaxWaiters 3 without a limiter": func(o *limitgrpc.Options) { o.Wait, o.MaxWaiters = time.Second, 3 },
		"Options.Each without a limiter": func(o *limitgrpc.Options) {
			o.Each = func(context.Context, string) []concurrency.AcquireOption { return nil }
		},
		"Options.Outage Share with Options.Rate":     func(o *limitgrpc.Options) { o.Outage = limitgrpc.Share },
		"the limiter is nil, and so is Options.Rate": func(o *limitgrpc.Options) { o.Rate = nil },
	} {
		bad := o
		change(&bad)
		_, err := limitgrpc.StreamServerInterceptor(nil, bad)
		require.ErrorIs(t, err, concurrency.ErrInvalid, want)
		require.ErrorContains(t, err, "limitgrpc: new stream server interceptor: "+want)
	}
}
