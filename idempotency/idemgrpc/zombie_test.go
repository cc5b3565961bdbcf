package idemgrpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// I01: what a handler answers after its session was lost, and another attempt has had another
// outcome, reaches no client, whatever is done with such answers otherwise.
func TestRefusalOfAZombie(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]idempotency.Action{"remembered": idempotency.Remember, "forgotten": idempotency.Forget, "abandoned": idempotency.Abandon} {
		for _, code := range []codes.Code{codes.FailedPrecondition, codes.OK} {
			t.Run(name+" "+code.String(), func(t *testing.T) {
				t.Parallel()
				both := fleet(t, 2, nil)
				begun, end := make(chan context.Context, 1), make(chan struct{})
				a := both[0].serve(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return what }}, func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
					begun <- ctx
					<-end
					return new(structpb.Struct), status.Error(code, "the zombie's")
				})
				b := both[1].serve(nil, paid)
				zombie := a.later("k")
				ctx := got(t, begun, "a begin")
				require.NoError(t, embedtest.Shared(t).ExpireLease(ctxT(t), both[0].sess.Lease()))
				got(t, ctx.Done(), "the loss of the session")
				var second reply
				require.Eventually(t, func() bool { second = b.pay("k"); return second.err == nil }, soon, 10*time.Millisecond)
				require.False(t, second.replayed)
				close(end)
				require.True(t, refused(t, got(t, zombie, "an answer").err, codes.Aborted, idemgrpc.ReasonInProgress))
				require.True(t, b.pay("k").replayed)
				require.EqualValues(t, 1, b.calls.Load())
			})
		}
	}
}
