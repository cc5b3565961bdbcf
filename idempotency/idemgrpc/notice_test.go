package idemgrpc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// V23: as idemhttp.TestUnknownOutcomeIsReportedWhenItEnds.
func TestUnknownOutcomeIsReportedWhenItEnds(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	reported := make(chan error, 10)
	ends := []error{fmt.Errorf("charge: %w", idempotency.NothingDone(status.Error(codes.Unavailable, "the bank is silent"))), idempotency.NothingDone(status.Error(codes.Unavailable, "no route")), status.Error(codes.NotFound, "no such card")}
	n := 0
	s := in.serve(&idemgrpc.Options{ReportError: func(_ context.Context, _ string, err error) { reported <- err }}, func(context.Context, *structpb.Struct) (*structpb.Struct, error) {
		n++
		return nil, ends[n-1]
	})
	require.Error(t, s.pay("unknown").err)
	err := got(t, reported, "a report")
	var unknown *idempotency.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorContains(t, err, "Unavailable")
	require.ErrorContains(t, err, "a NothingDone within another error does not count")
	r, _, err := in.Get(ctxT(t), unknown.Ref)
	require.NoError(t, err)
	require.Equal(t, idempotency.Unknown, r.State)
	require.Error(t, s.pay("nothing done").err)
	require.Error(t, s.pay("a final no").err)
	require.Empty(t, reported)
}
