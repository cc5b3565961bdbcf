package idemgrpc

import (
	"context"
	"crypto/rand"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

type ctxKey struct{}

// WithKey returns a context whose calls have that key: the call that it is made for, and its
// repetitions.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, ctxKey{}, key)
}

// WithNewKey returns a context whose calls have a new, random key. Make it outside of the
// loop that tries again.
func WithNewKey(ctx context.Context) context.Context { return WithKey(ctx, rand.Text()) }

// KeyOf returns the key that a context has.
func KeyOf(ctx context.Context) (string, bool) {
	key, ok := ctx.Value(ctxKey{}).(string)
	return key, ok
}

// UnaryClientInterceptor returns what gives each call of a client a key, unless its metadata
// has one: that of its context, from WithKey or WithNewKey, or else a new one. What gRPC
// repeats by its own retry policy has the same key. Methods tells which methods get one; nil
// means all. A key that is not 1 to 255 printable characters of ASCII ends the call with
// INVALID_ARGUMENT.
func UnaryClientInterceptor(methods func(fullMethod string) bool) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		if methods != nil && !methods(method) || len(md.Get(keyName)) > 0 {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		key, ok := KeyOf(ctx)
		if !ok {
			key = rand.Text()
		}
		if err := check(key); err != nil {
			return refusal(codes.InvalidArgument, ReasonMalformed, "the context's key cannot be used: "+err.Error(), 0)
		}
		return invoker(metadata.AppendToOutgoingContext(ctx, keyName, key), method, req, reply, cc, opts...)
	}
}
