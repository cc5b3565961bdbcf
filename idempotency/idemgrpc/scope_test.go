package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// A scope with too many records gets RESOURCE_EXHAUSTED, FailOpen or not; its repetitions do not.
func TestScopeFull(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, MaxPerScope: 1})[0]
	reported := make(chan error, 10)
	s := in.serve(&idemgrpc.Options{FailOpen: true, ReportError: func(_ context.Context, _ string, err error) { reported <- err }}, paid)
	require.NoError(t, s.pay("k1").err)
	require.True(t, refused(t, s.pay("k2").err, codes.ResourceExhausted, idemgrpc.ReasonScopeFull))
	require.ErrorIs(t, got(t, reported, "the refusal"), idempotency.ErrScopeFull)
	require.NoError(t, s.pay("k1").err)
	require.EqualValues(t, 1, s.calls.Load())
}
