package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// D23: a gateway passes on that an outcome is unknown in the service behind it: that is not the outcome, and is not
// replayed when an operator has resolved the call there. Under Refuse it is unknown in the gateway, too.
func TestUnknownBehindAGateway(t *testing.T) {
	t.Parallel()
	service := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	inner := service.serve(nil, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		return nil, status.Error(codes.DeadlineExceeded, "no answer")
	})
	pass := func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		key := metadata.ValueFromIncomingContext(ctx, "idempotency-key")
		re := inner.call(metadata.AppendToOutgoingContext(ctx, "idempotency-key", key[0]), req)
		return re.resp, re.err
	}
	for key, policy := range map[string]idempotency.LostPolicy{"a": idempotency.TakeOver, "b": idempotency.Refuse} {
		gateway := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: policy, CacheBytes: -1})[0]
		outer := gateway.serve(nil, pass)
		require.Equal(t, codes.DeadlineExceeded, status.Code(inner.pay(key).err))
		re := outer.pay(key)
		refused(t, re.err, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
		receipt, err := idemgrpc.Encode(message(t, "receipt", "r7"), nil)
		require.NoError(t, err)
		ref := idempotency.Ref(refOf(re.err))
		require.NoError(t, service.Resolve(ctxT(t), ref, idempotency.WasDone(receipt)))
		if policy == idempotency.Refuse {
			refused(t, outer.pay(key).err, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
			require.NoError(t, gateway.Resolve(ctxT(t), ref, idempotency.NotDone(), idempotency.EvenIfAlive()))
		}
		require.NoError(t, outer.pay(key).err, key)
	}
	require.EqualValues(t, 2, inner.calls.Load(), "once for each key")
}

// A284: an OnCode that returns what RememberFinal returns had the gateway record that the outcome is unknown.
func TestOnCodeByRememberFinal(t *testing.T) {
	t.Parallel()
	service := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	inner := service.serve(nil, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		return nil, status.Error(codes.DeadlineExceeded, "no answer")
	})
	require.Error(t, inner.pay("k").err)
	outer := fleet(t, 1, nil)[0].serve(&idemgrpc.Options{OnCode: idemgrpc.RememberFinal}, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		re := inner.pay("k")
		return re.resp, re.err
	})
	for n := range 2 {
		re := outer.pay("k")
		refused(t, re.err, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
		require.False(t, re.replayed)
		require.EqualValues(t, n+1, outer.calls.Load())
	}
}
