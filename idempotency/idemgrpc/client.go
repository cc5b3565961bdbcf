package idemgrpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

type ctxKey struct{}

// WithKey returns a context whose calls have that key. Use one context for a call and its
// retries.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, ctxKey{}, middleware.Given(key))
}

// WithNewKey returns a context whose calls have a new random key. Call it outside of the loop that
// retries. Within an attempt a random key would be another one for the attempt that takes over: there, the key is derived
// as without WithNewKey, equal calls of the context have one key, and one that was made before the attempt has no effect.
// A message that differs in each try, as by a timestamp, then has another key in each, and may execute twice: use
// WithKey with an Attempt.ChildKey for it.
func WithNewKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, ctxKey{}, middleware.GivenAnew(ctx))
}

// KeyOf returns the key that the calls of a context have by WithKey or WithNewKey.
func KeyOf(ctx context.Context) (string, bool) { return given(ctx).For(ctx) }

// given returns the key that a context was given, or nil.
func given(ctx context.Context) *middleware.GivenKey {
	k, _ := ctx.Value(ctxKey{}).(*middleware.GivenKey)
	return k
}

// UnaryClientInterceptor returns a client's interceptor that sets the key of each call whose
// metadata has none. Methods reports whether a method gets a key; nil means that all do. The key
// is the first of these that exists:
//
//   - the key of the call's context, from WithKey or, outside of attempts, WithNewKey: to retry, use the same context;
//   - if the context is an attempt's (in a handler behind the server's interceptor, or in the
//     function of idempotency.Do): idempotency.CallKey of target, method and message. An attempt
//     that takes over from a lost one makes the same calls with the same keys, and so does a
//     handler that retries after a code that RememberFinal does not record, or after ReasonUnknown. How a message is
//     encoded does not count, in an Any and in fields that this program does not know neither. A
//     message that differs each time, by a timestamp, has a new key each time: for such a call use
//     WithKey with an Attempt.ChildKey. A message that cannot be compared (it is not protobuf, or
//     has too much that this program does not know) ends the call with INVALID_ARGUMENT and
//     ReasonPayload before it is sent: it needs WithKey as well. So does a call that differs from an
//     earlier one of the attempt in its metadata alone, such as the account or authorization: the
//     attempt that takes over may make the two in another order, and they would swap their keys. Once the outcome of
//     the attempt is recorded, such calls of work that continues are made, and each has a random key. Metadata
//     that traces or times a call does not count, nor does what gRPC adds (PerRPCCredentials): calls for two accounts
//     whose credentials are given in that way need WithKey;
//   - a new random key for each call.
//
// Retries by gRPC's own retry policy have the same key. Within an attempt under idempotency.Refuse, a call that has a key,
// whichever layer has set it, is not retried so (grpc.MaxRetryRPCBufferSize): its service may not know keys. Put another
// interceptor that retries in front of this one.
//
// A key with spaces or other characters that have a meaning in a Structured Field is sent in quotes, which the server's
// interceptor and idemhttp remove. A key that is not 1 to 255 printable ASCII characters ends the call with
// INVALID_ARGUMENT.
func UnaryClientInterceptor(methods func(fullMethod string) bool) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		keyed := len(md.Get(keyName)) > 0
		if !keyed && methods != nil && !methods(method) {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		if idempotency.Refuses(ctx) { // a call whose message is not kept is not repeated
			opts = append(slices.Clip(opts), grpc.MaxRetryRPCBufferSize(0))
		}
		if keyed {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		key, ok := KeyOf(ctx)
		var retry func()
		if !ok {
			var err error
			key, retry, err = middleware.CallKey(ctx, given(ctx), "call "+method, func() (string, map[string]string, error) {
				text, err := describeCall(cc.Target()+" "+method, req)
				if err != nil {
					err = fmt.Errorf("call %s within an attempt: the message cannot be compared with that of another attempt, so the call has no key: %w; set the key by WithKey with an Attempt.ChildKey", method, err)
				}
				return text, middleware.Apart(md), err
			})
			if err != nil {
				return refusal(middleware.Body, err.Error())
			}
		}
		written, err := middleware.WriteKey(key)
		if err != nil {
			return refusal(middleware.Malformed, "the context's key (WithKey): "+err.Error())
		}
		final := false
		defer func() {
			if retry != nil && !final { // also if the invoker has panicked
				retry() // the next equal call is a retry of this one
			}
		}()
		err = invoker(metadata.AppendToOutgoingContext(ctx, keyName, written), method, req, reply, cc, opts...)
		final = after(status.Convert(err)) == idempotency.Remember
		return err
	}
}

// describeCall describes a call with its message. It returns an error for a message that may be
// another one for another attempt.
func describeCall(called string, req any) (string, error) {
	sum, err := rpc.Fingerprint(req)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %x", called, sum), nil
}
