package idemgrpc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// Q1: under Refuse no code releases a call that may have charged; the handler's word does. The client
// gets the status within it, as it is.
func TestRefuseMeansAtMostOnce(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	declined := status.Error(codes.ResourceExhausted, "the provider's answer is too large")
	for name, c := range map[string]struct {
		err   error
		opts  *idemgrpc.Options
		calls int64
	}{
		"a provider's code":   {declined, nil, 1},
		"a deadline":          {context.DeadlineExceeded, nil, 1},
		"OnCode forgets":      {declined, &idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return idempotency.Forget }}, 1},
		"nothing done":        {idempotency.NothingDone(declined), nil, 2},
		"permanent":           {idempotency.Permanent(declined), nil, 1},
		"without a key":       {idempotency.NothingDone(declined), &idemgrpc.Options{Optional: true}, 2},
		"of a method without": {idempotency.Permanent(declined), &idemgrpc.Options{Methods: func(string) bool { return false }}, 2},
	} {
		s := in.serve(c.opts, func(context.Context, *structpb.Struct) (*structpb.Struct, error) { return nil, c.err })
		key := strings.NewReplacer(" ", "-", "'", "").Replace(name)
		if name == "without a key" {
			key = ""
		}
		first, again := s.pay(key), s.pay(key)
		if c.err != context.DeadlineExceeded { // the value of the table
			require.Equal(t, "the provider's answer is too large", status.Convert(first.err).Message(), name)
			require.Equal(t, codes.ResourceExhausted, status.Code(first.err), name)
		}
		require.EqualValues(t, c.calls, s.calls.Load(), name)
		require.Equal(t, name == "permanent", again.replayed, name)
		if again.replayed {
			require.Equal(t, status.Convert(first.err).Proto().String(), status.Convert(again.err).Proto().String())
		}
		if c.calls == 1 && name != "permanent" {
			refused(t, again.err, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
		}
	}
}
