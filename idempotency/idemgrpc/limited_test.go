package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// TestBehindALimit: a call that a limit in front has refused has no record, and executes when it is repeated. That of a
// limit behind is judged by its code, as of any handler: under Refuse its outcome is unknown, since an interceptor
// between the two may have called the handler before (A267 in internal/proof/tested-failures.md).
func TestBehindALimit(t *testing.T) {
	t.Parallel()
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		for _, order := range []string{"limit in front", "limit behind", "limit behind a retry"} {
			t.Run(policy+", "+order, func(t *testing.T) {
				t.Parallel()
				in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: onLost})[0]
				lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
				require.NoError(t, err)
				limit, err := limitgrpc.UnaryServerInterceptor(lim, limitgrpc.Options{Key: func(context.Context, string) (string, bool) { return "acme", true }})
				require.NoError(t, err)
				var full *concurrency.Permit
				fill := func() {
					full, err = lim.Key("acme").Acquire(ctxT(t))
					require.NoError(t, err)
				}
				retry := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					resp, err := handler(ctx, req)
					if status.Code(err) != codes.Unavailable {
						return resp, err
					}
					fill()
					return handler(ctx, req)
				}
				chain := map[string][]grpc.UnaryServerInterceptor{
					"limit in front":       {limit, in.unary(nil)},
					"limit behind":         {in.unary(nil), limit},
					"limit behind a retry": {in.unary(nil), retry, limit},
				}[order]
				charged := 0
				pay := func() error {
					_, err := chained(incoming(ctxT(t), "k"), message(t), func(context.Context, any) (any, error) {
						if charged++; charged == 1 && order == "limit behind a retry" {
							return nil, status.Error(codes.Unavailable, "charged, and the bank's answer was lost")
						}
						return message(t), nil
					}, chain...)
					return err
				}
				before := 0
				if order == "limit behind a retry" {
					before = 1
				} else {
					fill()
				}
				require.Equal(t, codes.ResourceExhausted, status.Code(pay()))
				require.Equal(t, before, charged)
				require.NoError(t, full.Release(ctxT(t)))
				if order != "limit in front" && onLost == idempotency.Refuse {
					refused(t, pay(), codes.FailedPrecondition, idemgrpc.ReasonUnknown)
					require.Equal(t, before, charged)
					return
				}
				require.NoError(t, pay())
				require.NoError(t, pay(), "a replay")
				require.Equal(t, before+1, charged)
			})
		}
	}
}

// TestLostPermitOfAHandler: a permit that is lost ends the context of the handler, with its loss as the cause, in either order
// of the two interceptors (A326 in internal/proof/tested-failures.md): with the limit in front the handler ran on. There the
// attempt is interrupted, so its failure is not final, and the client is asked to repeat the call.
func TestLostPermitOfAHandler(t *testing.T) {
	t.Parallel()
	for order, code := range map[string]codes.Code{"limit in front": codes.Aborted, "limit behind": codes.Unknown} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			in := fleet(t, 1, nil)[0]
			lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
			require.NoError(t, err)
			limit, err := limitgrpc.UnaryServerInterceptor(lim, limitgrpc.Options{Key: func(context.Context, string) (string, bool) { return "acme", true }})
			require.NoError(t, err)
			chain := []grpc.UnaryServerInterceptor{limit, in.unary(nil)}
			if order == "limit behind" {
				chain = []grpc.UnaryServerInterceptor{in.unary(nil), limit}
			}
			calls := 0
			pay := func() error {
				_, err := chained(incoming(ctxT(t), "k"), message(t), func(ctx context.Context, _ any) (any, error) {
					if calls++; calls > 1 {
						return message(t), nil
					}
					p, _ := limitgrpc.FromContext(ctx)
					require.NoError(t, lim.Key("acme").EvictToken(ctxT(t), p.Token(), "test"))
					testkit.Closed(t, ctx.Done(), "the handler's context ends")
					require.ErrorIs(t, context.Cause(ctx), concurrency.ErrEvicted)
					return nil, ctx.Err()
				}, chain...)
				return err
			}
			require.Equal(t, code, status.Code(pay()))
			require.NoError(t, pay())
			require.NoError(t, pay(), "a replay")
			require.Equal(t, 2, calls)
		})
	}
}
