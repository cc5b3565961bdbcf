package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/requests"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// If etcd refuses in the middle, the verb prints which requests are resolved and which are not, and the same command
// continues (D20): it printed a number, and nothing else.
func TestResolveManyStopsMidway(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.StoreOf("web-7", "orders", nil)
	for _, id := range []string{"1", "2", "3"} {
		f.Lost("orders", clitest.Order(id))
	}
	var written, allowed atomic.Int64
	allowed.Store(1)
	denies := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Success) > 0 && strings.Contains(string(txn.Success[0].GetRequestPut().GetKey()), "/record/") && written.Add(1) > allowed.Load() {
			return rpctypes.ErrGRPCPermissionDenied
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	type report struct {
		Resolved []idempotency.Ref `json:"resolved_refs"`
		Left     []idempotency.Ref `json:"left_refs"`
		Refused  []any
	}
	resolve := func() (report, string, error) {
		var errs bytes.Buffer
		a := f.Call(&errs, grpc.WithChainUnaryInterceptor(denies))
		a.Yes, a.Output = true, "json"
		err := clitest.Execute(testkit.Context(t), requests.Requests(a), "resolve", "orders", "--state", "unknown", "--failed", "x")
		var out report
		require.NoError(t, json.Unmarshal(a.Std.Out.(*bytes.Buffer).Bytes(), &out))
		return out, errs.String(), err
	}
	out, _, err := resolve()
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	require.ErrorContains(t, err, "1 of 3 requests are resolved, "+string(out.Left[0])+" may be, and those after it are as before; the same command continues")
	require.Len(t, out.Resolved, 1)
	require.Len(t, out.Left, 2)
	require.Empty(t, out.Refused)
	r, _, err := s.Get(testkit.Context(t), out.Resolved[0])
	require.NoError(t, err)
	require.Equal(t, idempotency.Failed, r.State)
	listed := changes(f)
	require.Len(t, listed, 1)
	require.Equal(t, "1 target: "+string(out.Resolved[0]), listed[0].Target)
	require.Contains(t, listed[0].Failed, "2 of 3 were not resolved: ")

	allowed.Store(10)
	again, errs, err := resolve()
	require.NoError(t, err)
	require.ElementsMatch(t, out.Left, again.Resolved)
	require.Contains(t, errs, "EFFECT")
	require.Contains(t, errs, "duplicates get the failure; they would be refused")
}
