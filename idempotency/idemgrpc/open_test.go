package idemgrpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// FailOpen opens for a store that cannot be reached alone: not for a call of which this one has
// seen anything before, and not for a store that refuses.
func TestFailOpenForTheUnknownAlone(t *testing.T) {
	t.Parallel()
	ofStore := func(_ string, msg any) bool { return strings.Contains(fmt.Sprint(msg), "/idempotency/") }
	opts := &idemgrpc.Options{FailOpen: true} // within StoreTimeout etcd has to answer what is read before it is away
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

// A285: no call whose deadline was before StoreTimeout reported an etcd that does not answer. A client that leaves while its
// call waits is nothing that an operator should know.
func TestReportsOfClientsThatLeave(t *testing.T) {
	t.Parallel()
	for away, leaves := range map[bool]time.Duration{false: 0, true: 2 * time.Second} {
		in := fleet(t, 1, nil)[0]
		reported := make(chan error, 1)
		ctx, leave := context.WithTimeout(metadata.NewIncomingContext(ctxT(t), metadata.Pairs("idempotency-key", "k")), leaves)
		defer leave()
		intercept := in.unary(&idemgrpc.Options{
			StoreTimeout: time.Minute,
			ReportError:  func(_ context.Context, _ string, err error) { reported <- err },
		})
		if away {
			in.client.Cut()
		}
		_, err := intercept(ctx, message(t), &grpc.UnaryServerInfo{FullMethod: payMethod}, func(context.Context, any) (any, error) {
			t.Error("the handler runs")
			return nil, nil
		})
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		if !away {
			require.Empty(t, reported)
			continue
		}
		require.ErrorIs(t, got(t, reported, "an error"), concurrency.ErrUnavailable)
	}
}
