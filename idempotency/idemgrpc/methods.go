package idemgrpc

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/etcdkit/etcdkit/internal/supervise"
)

// NeedsKey is the default of Options.Methods: it reports whether the method with that full name
// needs a key. All do except for gRPC's own health checks and reflection, and for methods whose
// definition has the option idempotency_level = NO_SIDE_EFFECTS and is linked into the program.
func NeedsKey(fullMethod string) bool {
	if supervise.Method(fullMethod) {
		return false
	}
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return true
	}
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return true
	}
	opts, ok := method.Options().(*descriptorpb.MethodOptions)
	return !ok || opts.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}
