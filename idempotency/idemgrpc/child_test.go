package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// I33: what a handler calls within its attempt has the same keys in the attempt that takes over, and
// when it is tried again. The caller's own key counts more.
func TestClientInterceptorWithinAnAttempt(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	begin := func() *idempotency.Attempt {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
		require.NoError(t, err)
		return a
	}
	conn := func(target string) *grpc.ClientConn {
		c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	here, there := conn("passthrough:///a"), conn("passthrough:///b")
	intercept := idemgrpc.UnaryClientInterceptor(nil)
	unknown, err := status.New(codes.FailedPrecondition, "").WithDetails(&errdetails.ErrorInfo{Domain: idemgrpc.Domain, Reason: idemgrpc.ReasonUnknown})
	require.NoError(t, err)
	// sentAs returns the key that a call had, which ended with that status.
	sentAs := func(ctx context.Context, cc *grpc.ClientConn, as *status.Status, method string, req any) (key string) {
		err := intercept(ctx, method, req, nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			require.Len(t, md.Get("idempotency-key"), 1)
			key = md.Get("idempotency-key")[0]
			return as.Err()
		})
		require.Equal(t, as.Code(), status.Code(err))
		return key
	}
	sent := func(ctx context.Context, cc *grpc.ClientConn, code codes.Code, method string, req any) string {
		return sentAs(ctx, cc, status.New(code, ""), method, req)
	}
	charge, refund := message(t, "cents", 1), message(t, "cents", -1)
	a := begin()
	first, again := sent(a.Context(), here, codes.OK, payMethod, charge), sent(a.Context(), here, codes.OK, payMethod, charge)
	all := map[string]bool{first: true, again: true,
		sent(a.Context(), here, codes.OK, payMethod, refund): true, sent(a.Context(), here, codes.OK, watchMethod, charge): true,
		sent(a.Context(), there, codes.OK, payMethod, charge): true}
	require.Len(t, all, 5)
	require.NoError(t, a.Abandon(ctxT(t)))

	a = begin()
	require.Equal(t, 2, a.Attempt())
	require.Equal(t, first, sent(a.Context(), here, codes.Unavailable, payMethod, charge))
	require.Equal(t, first, sent(a.Context(), here, codes.OK, payMethod, charge), "tried again")
	require.Equal(t, again, sentAs(a.Context(), here, unknown, payMethod, charge), "its outcome is unknown")
	require.Equal(t, again, sent(a.Context(), here, codes.NotFound, payMethod, charge))
	require.NotContains(t, all, sent(a.Context(), here, codes.OK, payMethod, charge), "a third one")
	require.Equal(t, "mine", sent(idemgrpc.WithKey(a.Context(), "mine"), here, codes.OK, payMethod, charge))
	require.NoError(t, a.Release(ctxT(t)))
}

// A96: what makes no key within an attempt is refused when it is sent: the attempt that takes over would
// send it with another key. The caller's own key is sent, and so is a call outside of attempts.
func TestCallThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
	require.NoError(t, err)
	cc, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	var keys []string
	send := func(ctx context.Context) error {
		return idemgrpc.UnaryClientInterceptor(nil)(ctx, payMethod, "no message", nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			keys = append(keys, md.Get("idempotency-key")...)
			return nil
		})
	}
	err = send(a.Context())
	refused(t, err, codes.InvalidArgument, idemgrpc.ReasonPayload)
	require.ErrorContains(t, err, "call "+payMethod+" within an attempt")
	require.ErrorContains(t, err, "WithKey")
	require.Empty(t, keys, "it was not sent")
	require.NoError(t, send(idemgrpc.WithKey(a.Context(), a.ChildKey("charge"))))
	require.Equal(t, []string{a.ChildKey("charge")}, keys)
	require.NoError(t, send(ctxT(t)))
	require.Len(t, keys, 2)
	require.NoError(t, a.Release(ctxT(t)))
}

// V9: two equal calls for two accounts, which metadata names, swapped their keys in the next attempt if it made them
// in another order. The second one is refused before it is sent. What differs each time that a call is made does not count.
func TestCallsThatDifferInMetadata(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
	require.NoError(t, err)
	cc, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	sent := 0
	send := func(ctx context.Context, pairs ...string) error {
		return idemgrpc.UnaryClientInterceptor(nil)(metadata.AppendToOutgoingContext(ctx, pairs...), payMethod, message(t), nil, cc, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			sent++
			return nil
		})
	}
	require.NoError(t, send(a.Context(), "account", "A", "traceparent", "1"))
	require.NoError(t, send(a.Context(), "account", "A", "traceparent", "2"))
	err = send(a.Context(), "account", "B")
	refused(t, err, codes.InvalidArgument, idemgrpc.ReasonPayload)
	for _, part := range []string{"call " + payMethod + " within an attempt", "only in account", "WithKey"} {
		require.ErrorContains(t, err, part)
	}
	require.Equal(t, 2, sent)
	require.NoError(t, send(idemgrpc.WithKey(a.Context(), a.ChildKey("B")), "account", "B"))
	require.NoError(t, a.Release(ctxT(t)))
}

// A464: a call whose invoker panicked used up its key: its retry had another one, and so had the attempt that takes over.
func TestCallThatPanicsKeepsItsKey(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	cc, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	var keys []string
	send := func(ctx context.Context, panics bool) {
		defer func() { require.Equal(t, panics, recover() != nil) }()
		require.NoError(t, idemgrpc.UnaryClientInterceptor(nil)(ctx, payMethod, message(t), nil, cc, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			if panics {
				panic("a bug in an interceptor")
			}
			md, _ := metadata.FromOutgoingContext(ctx)
			keys = append(keys, md.Get("idempotency-key")...)
			return nil
		}))
	}
	for attempt := range 2 {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: "k"}, nil)
		require.NoError(t, err)
		if attempt == 0 {
			send(a.Context(), true)
		}
		send(a.Context(), false)
		require.NoError(t, a.Abandon(ctxT(t)))
	}
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}
