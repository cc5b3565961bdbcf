package idemgrpc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Probes and tools, which send no keys, pass with the defaults: gRPC's health checks and
// reflection, unary and as streams.
func TestHealthAndReflectionPass(t *testing.T) {
	t.Parallel()
	in := fleet(t, 1, nil)[0]
	srv := grpc.NewServer(in.interceptors(nil)...)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	reflection.Register(srv)
	conn := testkit.Connected(t, srv)
	resp, err := healthpb.NewHealthClient(conn).Check(ctxT(t), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, resp.GetStatus())
	watch, err := healthpb.NewHealthClient(conn).Watch(ctxT(t), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	list, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, list.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	_, err = list.Recv()
	require.NoError(t, err)
}

// A method that is defined to have no side effects needs no key; one that is merely idempotent
// has some, and does.
func TestMethodsWithoutSideEffects(t *testing.T) {
	t.Parallel()
	level := func(l descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodOptions {
		return &descriptorpb.MethodOptions{IdempotencyLevel: l.Enum()}
	}
	method := func(name string, opts *descriptorpb.MethodOptions) *descriptorpb.MethodDescriptorProto {
		m := proto.String(".google.protobuf.Struct")
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: m, OutputType: m, Options: opts}
	}
	const path = "idemgrpc_test/accounts.proto"
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String(path), Package: proto.String("idemgrpc_test"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/struct.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Accounts"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Get", level(descriptorpb.MethodOptions_NO_SIDE_EFFECTS)),
			method("Close", level(descriptorpb.MethodOptions_IDEMPOTENT)),
			method("Open", nil),
		}}},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	if _, err := protoregistry.GlobalFiles.FindFileByPath(path); err != nil { // nothing is ever unregistered: -count=2 finds it
		require.NoError(t, protoregistry.GlobalFiles.RegisterFile(file))
	}

	intercept := fleet(t, 1, nil)[0].unary(nil)
	for name, passes := range map[string]bool{"Accounts/Get": true, "Accounts/Close": false, "Accounts/Open": false, "Accounts/Unknown": false, "Accounts": false} {
		full := "/idemgrpc_test." + name
		require.Equal(t, !passes, idemgrpc.NeedsKey(full), name)
		_, err := intercept(t.Context(), message(t), &grpc.UnaryServerInfo{FullMethod: full}, func(context.Context, any) (any, error) {
			return new(structpb.Struct), nil
		})
		if passes {
			require.NoError(t, err)
		} else {
			refused(t, err, codes.InvalidArgument, idemgrpc.ReasonMissing)
		}
	}
}
