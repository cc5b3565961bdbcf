package rpc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Request returns the hash of the Fingerprints of a request's messages, which are encoded in protobuf or
// in JSON. Path ends in "/package.Service/Method". Request returns an error without a hash if the method
// is not registered in this program, or if a message is not of its type; and ErrByBytes beside the hash
// where Fingerprint does.
func Request(path string, json bool, messages [][]byte) (sum []byte, err error) {
	kind, err := requestOf(path)
	if err != nil {
		return nil, err
	}
	decode := proto.UnmarshalOptions{AllowPartial: true}.Unmarshal
	if json {
		decode = protojson.UnmarshalOptions{AllowPartial: true}.Unmarshal
	}
	h := sha256.New()
	var byBytes error
	for _, b := range messages {
		m := kind.New().Interface()
		if err := decode(b, m); err != nil {
			return nil, fmt.Errorf("a message is no %s: %w", kind.Descriptor().FullName(), err)
		}
		one, err := Fingerprint(m)
		if errors.Is(err, ErrByBytes) {
			byBytes = err
		}
		h.Write(one[:])
	}
	return h.Sum(nil), byBytes
}

// Registered reports whether a path ends in "/package.Service/Method" of a method that is registered in this
// program.
func Registered(path string) bool {
	_, err := requestOf(path)
	return err == nil
}

// requestOf returns the type of a method's request.
func requestOf(path string) (protoreflect.MessageType, error) {
	m, err := methodOf(path)
	if err != nil {
		return nil, err
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return nil, fmt.Errorf("the request's type of %s is not in protobuf's registry: %w", m.FullName(), err)
	}
	return kind, nil
}

// Returns returns the full name of the message that a method returns. It is empty if the method is not registered in
// this program.
func Returns(path string) string {
	m, err := methodOf(path)
	if err != nil {
		return ""
	}
	return string(m.Output().FullName())
}

// methodOf returns the method that a path ends in.
func methodOf(path string) (protoreflect.MethodDescriptor, error) {
	rest, method := cutLast(path)
	_, service := cutLast(rest)
	unknown := fmt.Errorf("the method %s of %q is not in protobuf's registry", method, service)
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, unknown
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, unknown
	}
	if m := s.Methods().ByName(protoreflect.Name(method)); m != nil {
		return m, nil
	}
	return nil, unknown
}

// cutLast cuts the last segment from a path.
func cutLast(path string) (rest, last string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}
