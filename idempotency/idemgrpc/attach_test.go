package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Operations that a handler gave to its attempt take effect with OK alone, whether or not its
// status is recorded, as Do does them for a function that returns no error.
func TestOperationsOfAFailedHandler(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Shared(t)
	prefix := etcd.Prefix(t)
	s := fleet(t, 1, nil)[0].serve(nil, func(ctx context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		code := codes.Code(req.GetFields()["code"].GetNumberValue())
		a, _ := idempotency.FromContext(ctx)
		a.Attach(nil, clientv3.OpPut(prefix+code.String(), "1"))
		return req, status.Error(code, "no")
	})
	for code, recorded := range map[codes.Code]bool{codes.OK: true, codes.FailedPrecondition: true, codes.NotFound: true, codes.Internal: false} {
		require.Equal(t, code, status.Code(s.pay(code.String(), "code", int(code)).err))
		resp, err := etcd.Client().Get(ctxT(t), prefix+code.String())
		require.NoError(t, err)
		require.Equal(t, code == codes.OK, len(resp.Kvs) == 1, code)
		require.Equal(t, recorded, s.pay(code.String(), "code", int(code)).replayed, code)
	}
}
