package idemgrpc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// codeOK is an error that says OK.
type codeOK struct{ error }

func (codeOK) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// An interceptor behind ours recovers a panic and returns neither a message nor an error, since its results have no
// names (A228 in internal/proof/tested-failures.md). The call was recorded as done, with the operations that the handler
// had attached, and no duplicate ran.
func TestNeitherMessageNorError(t *testing.T) {
	t.Parallel()
	prefix := embedtest.Shared(t).Prefix(t)
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: policy})[0]
		intercept := in.unary(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return idempotency.Remember }})
		for name, recovered := range map[string]struct {
			resp   any
			err    error
			failed bool
		}{
			"nothing": {nil, nil, true}, "an error that says OK": {nil, codeOK{}, true},
			"a message that is nil": {(*structpb.Struct)(nil), nil, false}, "a message": {message(t), nil, false},
		} {
			runs := 0
			id := fmt.Sprint(policy, name)
			call := func() (any, error) {
				return intercept(metadata.NewIncomingContext(ctxT(t), metadata.Pairs("idempotency-key", fmt.Sprintf("%q", name))), message(t), &grpc.UnaryServerInfo{FullMethod: payMethod}, func(ctx context.Context, req any) (any, error) {
					runs++
					a, _ := idempotency.FromContext(ctx)
					a.Attach(nil, clientv3.OpPut(prefix+id, "x"))
					if runs > 1 {
						return message(t), nil
					}
					return recovered.resp, recovered.err
				})
			}
			_, err := call()
			require.Equal(t, recovered.err, err, "grpc.Server makes a failure of it")
			there, err := embedtest.Shared(t).Client().Get(ctxT(t), prefix+id)
			require.NoError(t, err)
			require.Equal(t, recovered.failed, len(there.Kvs) == 0, name)
			_, err = call()
			switch {
			case recovered.failed && policy == idempotency.Refuse:
				refused(t, err, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
				require.Equal(t, 1, runs)
			case recovered.failed:
				require.NoError(t, err)
				require.Equal(t, 2, runs, name)
			default:
				require.Equal(t, 1, runs, name)
			}
		}
	}
}

// No client gets the message of an attempt that counts as lost, since OnCode has said so (A446 in
// internal/proof/tested-failures.md).
func TestNoSuccessOfALostAttempt(t *testing.T) {
	t.Parallel()
	for policy, sent := range map[idempotency.LostPolicy]map[idempotency.Action]bool{
		idempotency.TakeOver: {idempotency.Forget: true}, idempotency.Refuse: {},
	} {
		in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: policy})[0]
		for _, says := range []idempotency.Action{idempotency.Forget, idempotency.Abandon} {
			s := in.serve(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return says }}, paid)
			err := s.pay(fmt.Sprint("k", says)).err
			if sent[says] {
				require.NoError(t, err)
				continue
			}
			if policy == idempotency.Refuse {
				require.False(t, refused(t, err, codes.FailedPrecondition, idemgrpc.ReasonUnknown), "an operator resolves it")
				continue
			}
			require.True(t, refused(t, err, codes.Aborted, idemgrpc.ReasonInProgress), "it may be repeated")
		}
	}
}
