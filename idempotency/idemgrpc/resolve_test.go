package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// Duplicates of a call that an operator has resolved get the operator's message, or status with
// details. A result that no interceptor can decode is answered with INTERNAL.
func TestResolvedByHand(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})[0]
	var at atomic.Pointer[idempotency.Attempt]
	reported := make(chan error, 10)
	report := func(_ context.Context, _ string, err error) {
		if !errors.Is(err, idempotency.ErrUnknown) {
			reported <- err
		}
	}
	note := func(_ context.Context, method string, req any) string { return fmt.Sprintf("%s of %T", method, req) }
	s := in.serve(&idemgrpc.Options{Note: note, ReportError: report, OnCode: func(codes.Code) idempotency.Action { return idempotency.Abandon }}, func(ctx context.Context, _ *structpb.Struct) (*structpb.Struct, error) {
		a, _ := idempotency.FromContext(ctx)
		at.Store(a)
		return nil, status.Error(codes.Internal, "lost")
	})
	receipt := message(t, "receipt", "r7")
	declined, err := status.New(codes.FailedPrecondition, "declined").WithDetails(&errdetails.LocalizedMessage{Message: "abgelehnt"})
	require.NoError(t, err)
	for key, failed := range map[string]*status.Status{"done": nil, "declined": declined} {
		require.Error(t, s.pay(key).err)
		err := s.pay(key).err
		refused(t, err, codes.FailedPrecondition, idemgrpc.ReasonUnknown)
		require.Empty(t, metadataOf(err)[idemgrpc.MetadataNote], "the operator's text is not the client's")
		shows := in.serve(&idemgrpc.Options{ShowNote: true}, paid)
		require.Equal(t, "/test.Payments/Pay of *structpb.Struct", metadataOf(shows.pay(key).err)[idemgrpc.MetadataNote])
		outcome, err := idemgrpc.Encode(receipt, failed.Err())
		require.NoError(t, err)
		require.NoError(t, in.Resolve(ctxT(t), in.Ref(at.Load().Key()), idempotency.WasDone(outcome)))
		re := s.pay(key)
		require.True(t, re.replayed)
		if failed == nil {
			require.NoError(t, re.err)
			require.True(t, proto.Equal(receipt, re.resp))
		} else {
			require.True(t, proto.Equal(declined.Proto(), status.Convert(re.err).Proto()))
		}
	}
	require.EqualValues(t, 2, s.calls.Load())

	require.Error(t, s.pay("unreadable").err)
	ref := in.Ref(at.Load().Key())
	for name, bad := range map[string][]byte{"JSON": []byte(`{"charge":7}`), "a response of HTTP": []byte("idemhttp 1 201 -\n\n")} {
		err = in.Resolve(ctxT(t), ref, idempotency.WasDone(bad))
		require.ErrorIs(t, err, idempotency.ErrInvalid, "no duplicate could get "+name)
		require.ErrorContains(t, err, "idemgrpc.Encode")
	}
	unknown, err := proto.Marshal(&anypb.Any{TypeUrl: "type.googleapis.com/test.Unknown"})
	require.NoError(t, err)
	require.NoError(t, in.Resolve(ctxT(t), ref, idempotency.WasDone(forms.Call{Body: unknown}.Encode())), "its type is one of the servers, perhaps")
	err = s.pay("unreadable").err
	require.False(t, refused(t, err, codes.Internal, idemgrpc.ReasonUnreadable), "a repetition gets the same answer until an operator acts")
	require.ErrorContains(t, err, "operator")
	err = got(t, reported, "the result that is no outcome")
	require.ErrorContains(t, err, string(ref))
	require.ErrorContains(t, err, "not found")
	require.ErrorContains(t, err, "Store.Resolve with OnlyRevision")
	r, _, err := in.Get(ctxT(t), ref)
	require.NoError(t, err)
	outcome, err := idemgrpc.Encode(receipt, nil)
	require.NoError(t, err)
	require.NoError(t, in.Resolve(ctxT(t), ref, idempotency.WasDone(outcome), idempotency.OnlyRevision(r.Revision)))
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.True(c, proto.Equal(receipt, s.pay("unreadable").resp)) }, soon, 10*time.Millisecond)

	for name, bad := range map[string]func() ([]byte, error){
		"nothing":  func() ([]byte, error) { return idemgrpc.Encode(nil, nil) },
		"OK":       func() ([]byte, error) { return idemgrpc.Encode(nil, fine{}) },
		"no UTF-8": func() ([]byte, error) { return idemgrpc.Encode(wrapperspb.String("\xff"), nil) },
	} {
		_, err := bad()
		require.Error(t, err, name)
	}
}

// fine is an error whose status is OK.
type fine struct{}

func (fine) Error() string              { return "fine" }
func (fine) GRPCStatus() *status.Status { return status.New(codes.OK, "") }
