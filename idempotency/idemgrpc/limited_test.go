package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limitgrpc"
	"github.com/etcdkit/etcdkit/idempotency"
)

// TestBehindALimit: a call that a limit has refused executes when it is repeated, whatever the policy and the order of the
// two interceptors: its handler did not run (A267 in internal/proof/tested-failures.md).
func TestBehindALimit(t *testing.T) {
	t.Parallel()
	info := &grpc.UnaryServerInfo{FullMethod: payMethod}
	for policy, onLost := range map[string]idempotency.LostPolicy{"TakeOver": idempotency.TakeOver, "Refuse": idempotency.Refuse} {
		for order, first := range map[string]bool{"limit in front": true, "limit behind": false} {
			t.Run(policy+", "+order, func(t *testing.T) {
				t.Parallel()
				in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: onLost})[0]
				lim, err := concurrency.NewKeyedLimiter(in.sess, "tenants", 1, nil)
				require.NoError(t, err)
				limit, err := limitgrpc.UnaryServerInterceptor(lim, limitgrpc.Options{Key: func(context.Context, string) (string, bool) { return "acme", true }})
				require.NoError(t, err)
				outer, inner := in.unary(nil), limit
				if first {
					outer, inner = inner, outer
				}
				calls := 0
				pay := func() error {
					ctx := metadata.NewIncomingContext(ctxT(t), metadata.Pairs("idempotency-key", "k"))
					_, err := outer(ctx, &structpb.Struct{}, info, func(ctx context.Context, req any) (any, error) {
						return inner(ctx, req, info, func(context.Context, any) (any, error) {
							calls++
							return &structpb.Struct{}, nil
						})
					})
					return err
				}
				p, err := lim.Key("acme").Acquire(ctxT(t))
				require.NoError(t, err)
				require.Equal(t, codes.ResourceExhausted, status.Code(pay()))
				require.NoError(t, p.Release(ctxT(t)))
				require.NoError(t, pay())
				require.NoError(t, pay(), "a replay")
				require.Equal(t, 1, calls)
			})
		}
	}
}
