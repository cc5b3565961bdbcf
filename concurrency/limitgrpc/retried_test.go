package limitgrpc_test

import (
	"context"
	"strconv"
	"sync"
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
)

// retrying is a client whose calls gRPC sends up to four times, at once, after one of the codes.
func retrying(codes string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": [` + codes + `]}}]}`)
}

// The codes that clients and proxies repeat by default, and those that their users add.
const (
	byDefault = `"UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"`
	allCodes  = byDefault + `, "ABORTED", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED"`
)

// lose evicts the permit of a key that is held, and waits for the end of the context.
func (in instance) lose(ctx context.Context) error {
	p, ok := limitgrpc.FromContext(ctx)
	if !ok {
		return status.Error(codes.FailedPrecondition, "there is no permit")
	}
	if err := in.Key("acme").EvictToken(ctxT(in.f.T), p.Token(), "test"); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// A675: a call whose permit was lost while its handler ran may have taken effect: nothing in its answer has a client send it
// again, neither the code for those that repeat by the code alone, nor the trailer for gRPC's own policy.
func TestLostCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		repeat string
		hides  bool // the trailer does not arrive
	}{
		"codes of the defaults, without the trailer": {byDefault, true},
		"all codes": {allCodes, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			opts := in.interceptors(options())
			if c.hides {
				opts = append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(withoutTrailer)}, opts...)
			}
			s := serve(t, opts, func(ctx context.Context, _ *message) (*message, error) { return nil, in.lose(ctx) },
				func(ss grpc.ServerStream) error { return in.lose(ss.Context()) }, retrying(c.repeat))
			var trailer metadata.MD
			err := s.conn.Invoke(as(ctxT(t), "acme"), workMethod, wrapperspb.String("pay"), new(message), grpc.Trailer(&trailer))
			require.Zero(t, refusal(t, err, codes.Unknown, limitgrpc.ReasonLost))
			require.ErrorContains(t, err, "may have taken effect")
			require.EqualValues(t, 1, s.calls.Load())
			if c.hides {
				return
			}
			require.Equal(t, []string{"-1"}, trailer.Get("grpc-retry-pushback-ms"))
			cs, err := s.conn.NewStream(as(ctxT(t), "acme"), watchStream, watchMethod)
			require.NoError(t, err)
			require.Zero(t, refusal(t, cs.RecvMsg(new(message)), codes.Unknown, limitgrpc.ReasonLost))
			require.EqualValues(t, 2, s.calls.Load())
			require.Equal(t, []string{"-1"}, cs.Trailer().Get("grpc-retry-pushback-ms"))
		})
	}
}

// withoutTrailer drops the trailer of a call, as a proxy may.
func withoutTrailer(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(grpc.NewContextWithServerTransportStream(ctx, noTrailer{grpc.ServerTransportStreamFromContext(ctx)}), req)
}

type noTrailer struct{ grpc.ServerTransportStream }

func (noTrailer) SetTrailer(metadata.MD) error { return nil }

// A675: a retry around a client's interceptor, by the codes that such retries have by default, does not send a call again
// whose permit was lost, nor open its stream again.
func TestLostCallOfAClientIsNotRepeated(t *testing.T) {
	t.Parallel()
	repeated := func(err error) bool {
		switch status.Code(err) {
		case codes.Unavailable, codes.ResourceExhausted, codes.Canceled, codes.Aborted:
			return true
		}
		return false
	}
	in := newInstance(t, 1)
	o := options(func(o *limitgrpc.Options) {
		o.Key = outgoing
		o.Each = func(context.Context, string) []concurrency.AcquireOption {
			return []concurrency.AcquireOption{concurrency.ID("flow")}
		}
	})
	unary, err := limitgrpc.UnaryClientInterceptor(in, o)
	require.NoError(t, err)
	streams, err := limitgrpc.StreamClientInterceptor(in, o)
	require.NoError(t, err)
	retry := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoker(ctx, method, req, reply, cc, opts...)
		for range 3 {
			if repeated(err) {
				err = invoker(ctx, method, req, reply, cc, opts...)
			}
		}
		return err
	}
	evict := func(ctx context.Context) error {
		if err := in.Key("acme").Evict(ctxT(t), "flow", "test"); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	s := serve(t, nil, func(ctx context.Context, _ *message) (*message, error) { return nil, evict(ctx) }, echo, grpc.WithChainUnaryInterceptor(retry, unary))
	err = s.call(of(ctxT(t), "acme"), "pay")
	require.Zero(t, refusal(t, err, codes.Unknown, limitgrpc.ReasonLost))
	require.ErrorIs(t, err, concurrency.ErrEvicted)
	require.NotErrorIs(t, err, limitgrpc.ErrNotSent)
	require.EqualValues(t, 1, s.calls.Load())

	in.until("acme", 0, 0)
	opened := 0
	_, err = streams(of(ctxT(t), "acme"), watchStream, s.conn, watchMethod, func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		opened++
		return nil, status.FromContextError(evict(ctx)).Err()
	})
	require.False(t, repeated(err), err)
	require.Zero(t, refusal(t, err, codes.Unknown, limitgrpc.ReasonLost))
	require.NotErrorIs(t, err, limitgrpc.ErrNotSent)
	require.Equal(t, 1, opened)
	in.until("acme", 0, 0)
}

// attempts are the attempts of a call that a server has seen, in front of its limits.
type attempts struct {
	mu   sync.Mutex
	at   []time.Time // of the beginnings
	next []time.Time // the earliest of the one that follows, by RetryInfo
}

func (a *attempts) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	a.at = append(a.at, time.Now())
	a.mu.Unlock()
	resp, err := handler(ctx, req)
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*errdetails.RetryInfo); ok {
			a.mu.Lock()
			a.next = append(a.next, time.Now().Add(d.RetryDelay.AsDuration()))
			a.mu.Unlock()
		}
	}
	return resp, err
}

// A677: gRPC's own retry policy, which does not read RetryInfo, repeats a refused call when that says so, by the trailer
// grpc-retry-pushback-ms: it was sent four times within milliseconds.
func TestRefusedCallComesBackLater(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	var free atomic.Pointer[concurrency.Permit]
	free.Store(in.take("acme"))
	seen := new(attempts)
	leave := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if p := free.Swap(nil); p != nil { // the first attempt was refused
			require.NoError(t, p.Release(ctxT(t)))
		}
		return resp, err
	}
	s := serve(t, append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(seen.count, leave)}, in.interceptors(options())...), ok, okStream, retrying(byDefault))
	require.NoError(t, s.get("acme"))
	require.Len(t, seen.at, 2)
	require.Len(t, seen.next, 1)
	require.False(t, seen.at[1].Before(seen.next[0]), "%v after the first attempt", seen.at[1].Sub(seen.at[0]))
}

// A677: each refusal says in the trailer what its RetryInfo says, for unary calls and streams, and a pause, whose end is
// unknown, that the call is not to be repeated: one attempt, whatever the policy.
func TestPushbackOfRefusals(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	lim, err := concurrency.NewKeyedLimiter(in.sess, "with a total", 2, &concurrency.KeyedLimiterOptions{Total: 2})
	require.NoError(t, err)
	in.KeyedLimiter = lim
	seen := new(attempts)
	opts := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(seen.count)}, in.interceptors(options(func(o *limitgrpc.Options) {
		o.Each = func(ctx context.Context, _ string) []concurrency.AcquireOption {
			if ids := metadata.ValueFromIncomingContext(ctx, "flow"); len(ids) > 0 {
				return []concurrency.AcquireOption{concurrency.ID(ids[0])}
			}
			return nil
		}
	}))...)
	s := serve(t, opts, ok, okStream, grpc.WithDisableRetry())
	says := func(what string, code codes.Code, reason string, repeats bool, pairs ...string) {
		t.Helper()
		var trailer metadata.MD
		ctx := metadata.AppendToOutgoingContext(as(ctxT(t), "acme"), pairs...)
		err := s.conn.Invoke(ctx, workMethod, wrapperspb.String("get"), new(message), grpc.Trailer(&trailer))
		unary := refusal(t, err, code, reason)
		cs, err := s.conn.NewStream(ctx, watchStream, watchMethod)
		require.NoError(t, err)
		stream := refusal(t, cs.RecvMsg(new(message)), code, reason)
		for _, got := range []struct {
			delay time.Duration
			metadata.MD
		}{{unary, trailer}, {stream, cs.Trailer()}} {
			want := "-1"
			if repeats {
				want = strconv.FormatInt(int64((got.delay+time.Millisecond-1)/time.Millisecond), 10)
			}
			require.Equal(t, repeats, got.delay > 0, what)
			require.Equal(t, []string{want}, got.Get("grpc-retry-pushback-ms"), what)
		}
	}
	flow, err := lim.Key("acme").TryAcquire(ctxT(t), concurrency.ID("flow"))
	require.NoError(t, err)
	says("an ID in use", codes.Aborted, limitgrpc.ReasonHeld, true, "flow", "flow")
	require.NoError(t, lim.Key("acme").SetLimit(ctxT(t), 1, concurrency.CreateLimit()))
	says("a full key", codes.ResourceExhausted, limitgrpc.ReasonKeyFull, true)
	require.NoError(t, lim.ClearLimit(ctxT(t), "acme"))
	require.NoError(t, lim.Total().SetLimit(ctxT(t), 1))
	says("a full total", codes.Unavailable, limitgrpc.ReasonTotalFull, true)
	require.NoError(t, flow.Release(ctxT(t)))
	require.NoError(t, lim.Key("acme").SetLimit(ctxT(t), 0, concurrency.CreateLimit()))
	says("a paused key", codes.ResourceExhausted, limitgrpc.ReasonKeyFull, false)
	require.NoError(t, lim.ClearLimit(ctxT(t), "acme"))
	require.NoError(t, lim.Total().SetLimit(ctxT(t), 0))
	says("a paused total", codes.Unavailable, limitgrpc.ReasonTotalFull, false)

	seen.at = nil
	again := serve(t, opts, ok, okStream, retrying(allCodes))
	require.Error(t, again.get("acme"))
	require.Len(t, seen.at, 1, "a pause")
}
