package idemgrpc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/etcdkit/etcdkit/idempotency"
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
// has one: that of its context, from WithKey or WithNewKey. Otherwise, if the context is that of an
// attempt (of a handler behind the server's interceptor, or of idempotency.Do), it is
// idempotency.CallKey of target, method and message: an attempt that takes over from a lost one makes
// the same calls with the same keys, and so does a handler that tries again after a code that
// RememberFinal would not record. A message that differs each time, by a timestamp, has a new key each
// time: then give WithKey an Attempt.ChildKey. Otherwise the key is a new one for each call. What gRPC
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
		var retry func()
		if _, within := idempotency.FromContext(ctx); within && !ok {
			key, retry, ok = childKey(ctx, cc.Target()+" "+method, req)
		}
		if !ok {
			key = rand.Text()
		}
		if err := check(key); err != nil {
			return refusal(ReasonMalformed, "the context's key cannot be used: "+err.Error())
		}
		err := invoker(metadata.AppendToOutgoingContext(ctx, keyName, key), method, req, reply, cc, opts...)
		if retry != nil && RememberFinal(status.Code(err)) != idempotency.Remember {
			retry() // another try may end otherwise, and is the same call
		}
		return err
	}
}

// childKey returns the key of an attempt's call, unless its message cannot be compared.
func childKey(ctx context.Context, called string, req any) (key string, retry func(), ok bool) {
	m, ok := req.(proto.Message)
	if !ok {
		return "", nil, false
	}
	text, err := deterministic.Marshal(m)
	if err != nil {
		return "", nil, false
	}
	return idempotency.CallKey(ctx, fmt.Sprintf("%s %x", called, sha256.Sum256(text)))
}
