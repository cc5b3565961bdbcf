package idemgrpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// FailOpen opens for a store that cannot be reached alone: not for a call of which this one has
// seen anything before, and not for a store that refuses.
func TestFailOpenForTheUnknownAlone(t *testing.T) {
	t.Parallel()
	ofStore := func(_ string, msg any) bool { return strings.Contains(fmt.Sprint(msg), "/idempotency/") }
	opts := &idemgrpc.Options{FailOpen: true, StoreTimeout: 300 * time.Millisecond}
	for _, how := range []string{"lost", "denied"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			in := fleet(t, 2, nil)
			s := in[1].serve(opts, paid)
			fault := embedtest.Fault{Do: embedtest.FailWith, Match: ofStore, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied}
			if how == "lost" {
				lost := in[0].serve(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return idempotency.Abandon }}, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
					return nil, status.Error(codes.Internal, "lost")
				})
				require.Error(t, lost.pay("k").err)
				fault = embedtest.Fault{Do: embedtest.Pass, Match: ofStore, After: in[1].client.Cut}
			}
			struck := in[1].client.Inject(fault)
			require.True(t, refused(t, s.pay("k").err, codes.Unavailable, idemgrpc.ReasonUnavailable))
			require.Positive(t, struck.Hits())
			require.Zero(t, s.calls.Load())
		})
	}
}
