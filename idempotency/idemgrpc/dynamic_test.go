package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
)

// D4: a message of a type that the program does not have, as a proxy sends it, could not be read by a
// duplicate. It is recorded as done without the message, and reported.
func TestDynamicMessage(t *testing.T) {
	t.Parallel()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("dynamic.proto"), Package: proto.String("dynamic"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Receipt")}},
	}, nil)
	require.NoError(t, err)
	receipt := dynamicpb.NewMessage(file.Messages().Get(0))
	reported := make(chan error, 10)
	unary := fleet(t, 1, nil)[0].unary(&idemgrpc.Options{ReportError: func(_ context.Context, _ string, err error) { reported <- err }})
	runs := 0
	call := func() (any, error) {
		ctx := metadata.NewIncomingContext(ctxT(t), metadata.Pairs("idempotency-key", "k"))
		return unary(ctx, message(t), &grpc.UnaryServerInfo{FullMethod: payMethod}, func(context.Context, any) (any, error) {
			runs++
			return receipt, nil
		})
	}
	resp, err := call()
	require.NoError(t, err)
	require.Same(t, receipt, resp)
	require.ErrorContains(t, got(t, reported, "an error"), "dynamic.Receipt")
	for range 2 {
		_, err = call()
		refused(t, err, codes.FailedPrecondition, idemgrpc.ReasonNotKept)
	}
	require.Equal(t, 1, runs)

	_, err = idemgrpc.Encode(receipt, nil)
	require.ErrorContains(t, err, "dynamic.Receipt", "nor can an operator record it")
}
