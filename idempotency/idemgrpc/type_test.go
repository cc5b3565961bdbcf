package idemgrpc_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// registered adds a service to protobuf's registry, as generated code does.
var registered = sync.OnceValue(func() error {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("typed.proto"), Package: proto.String("typed"), Dependency: []string{"google/protobuf/struct.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Payments"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Pay"), InputType: proto.String(".google.protobuf.Struct"), OutputType: proto.String(".google.protobuf.Struct")},
		}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		return err
	}
	return protoregistry.GlobalFiles.RegisterFile(file)
})

// V32: an operator's message of another type than the method returns is refused, by Resolve, which knows it from the
// record, and otherwise by the service: the client read it as a success with nonsense.
func TestMessageOfAnotherType(t *testing.T) {
	t.Parallel()
	require.NoError(t, registered())
	in := fleet(t, 1, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse, CacheBytes: -1})[0]
	reported := make(chan error, 10)
	unary := in.unary(&idemgrpc.Options{ReportError: func(_ context.Context, _ string, err error) { reported <- err }})
	const method = "/typed.Payments/Pay"
	pay := func(key string) error {
		ctx := metadata.NewIncomingContext(ctxT(t), metadata.Pairs("idempotency-key", key))
		_, err := unary(ctx, message(t), &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			return nil, status.Error(codes.DeadlineExceeded, "the bank is silent")
		})
		return err
	}
	other, err := idemgrpc.Encode(wrapperspb.Int64(7), nil)
	require.NoError(t, err)
	right, err := idemgrpc.Encode(message(t, "receipt", "r7"), nil)
	require.NoError(t, err)

	require.Error(t, pay("k"))
	ref := in.Ref(idempotency.Key{Op: method, ID: "k"})
	r, _, err := in.Get(ctxT(t), ref)
	require.NoError(t, err)
	require.Equal(t, "google.protobuf.Struct", r.Returns)
	err = in.Resolve(ctxT(t), ref, idempotency.WasDone(other))
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, "is a google.protobuf.Int64Value, and the call returns a google.protobuf.Struct")
	require.NoError(t, in.Resolve(ctxT(t), ref, idempotency.WasDone(right)))
	require.NoError(t, pay("k"))

	// A record that does not know the type.
	old := idempotency.Key{Op: method, ID: "old"}
	a, _, err := in.Begin(ctxT(t), old, idemgrpc.Fingerprint(message(t)), idempotency.Via("grpc"))
	require.NoError(t, err)
	require.NoError(t, a.Abandon(ctxT(t)))
	require.NoError(t, in.Resolve(ctxT(t), in.Ref(old), idempotency.WasDone(other)))
	for len(reported) > 0 {
		<-reported
	}
	refused(t, pay("old"), codes.Internal, idemgrpc.ReasonUnreadable)
	require.ErrorContains(t, got(t, reported, "a report"), "the method returns a google.protobuf.Struct")
}
