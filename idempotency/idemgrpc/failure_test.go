package idemgrpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// A390: an error whose text is no UTF-8, as of a handler that puts what the client has sent into it, or whose status was
// larger than MaxResponse, was replayed as FAILED_PRECONDITION, "the call was done". So was any error that the store could
// not keep. A duplicate of a final no gets its code, and is never answered that the call was done.
func TestFailureThatIsNotKept(t *testing.T) {
	t.Parallel()
	detailed, err := status.New(codes.AlreadyExists, "there").WithDetails(wrapperspb.String("it"))
	require.NoError(t, err)
	broken := detailed.Proto()
	broken.Details = append(broken.Details, &anypb.Any{TypeUrl: "x/\xff"})
	returns := map[string]error{
		"text": status.Error(codes.NotFound, "no \xff\xff"), "details": status.FromProto(broken).Err(),
		"large": status.Error(codes.OutOfRange, strings.Repeat("x", 1000)),
	}
	fails := func(_ context.Context, req *structpb.Struct) (*structpb.Struct, error) {
		return nil, returns[req.GetFields()["case"].GetStringValue()]
	}
	s := fleet(t, 1, nil)[0].serve(&idemgrpc.Options{MaxResponse: 1000}, fails)
	for name, kept := range map[string]bool{"text": true, "details": true, "large": false} {
		first, again := s.pay(name, "case", name), s.pay(name, "case", name)
		require.True(t, again.replayed, name)
		require.Equal(t, status.Code(returns[name]), status.Code(again.err), name)
		require.Equal(t, kept, status.Convert(first.err).Message() == status.Convert(again.err).Message(), name)
	}
	require.EqualValues(t, 3, s.calls.Load())

	s = fleet(t, 1, &idempotency.Options{SingleTenant: true, Codec: failing{}})[0].serve(&idemgrpc.Options{}, fails)
	require.Equal(t, codes.NotFound, status.Code(s.pay("k", "case", "text").err))
	refused(t, s.pay("k", "case", "text").err, codes.FailedPrecondition, idemgrpc.ReasonFailed)
	require.EqualValues(t, 1, s.calls.Load())
}

// failing is a Codec whose key service is away.
type failing struct{}

func (failing) Name() string                       { return "kms" }
func (failing) Encode(_, _ []byte) ([]byte, error) { return nil, errors.New("the key service is away") }
func (failing) Decode(b, _ []byte) ([]byte, error) { return b, nil }

// A701: under Refuse, the response of an abandoned attempt was withheld with IN_PROGRESS and a RetryInfo, although only an
// operator changes its outcome. The first answer is that of its duplicates.
func TestWithheldResponseIsUnknown(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	s := in.serve(&idemgrpc.Options{OnCode: func(codes.Code) idempotency.Action { return idempotency.Abandon }}, paid)
	first, again := s.pay("k"), s.pay("k")
	for _, re := range []reply{first, again} {
		require.False(t, refused(t, re.err, codes.FailedPrecondition, idemgrpc.ReasonUnknown))
	}
	require.NotEmpty(t, refOf(first.err))
	require.Equal(t, refOf(again.err), refOf(first.err))
	require.EqualValues(t, 1, s.calls.Load())
}
