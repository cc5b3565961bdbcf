package idemgrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/idempotency"
)

// The names in metadata.
const (
	keyName      = "idempotency-key"
	replayedName = "idempotent-replayed"
	maxKey       = 255
)

// UnaryServerInterceptor returns what puts a server's unary methods behind a store: see the
// package's comment for what it does. Its handlers are safe for concurrent use. It panics
// if the options are out of range, or if neither they have a Scope nor the store is
// SingleTenant.
func UnaryServerInterceptor(store *idempotency.Store, opts *Options) grpc.UnaryServerInterceptor {
	c, err := configure(store, opts)
	if err != nil {
		panic(fmt.Sprintf("idemgrpc: %v", err))
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !c.Methods(info.FullMethod) {
			return handler(ctx, req)
		}
		return c.serve(ctx, req, info.FullMethod, handler)
	}
}

// StreamServerInterceptor returns what refuses the streams of a server, which cannot be
// done once: those of methods that need a key, unless PassStreams is set. It panics where
// UnaryServerInterceptor does.
func StreamServerInterceptor(store *idempotency.Store, opts *Options) grpc.StreamServerInterceptor {
	c, err := configure(store, opts)
	if err != nil {
		panic(fmt.Sprintf("idemgrpc: %v", err))
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if c.PassStreams || !c.Methods(info.FullMethod) {
			return handler(srv, ss)
		}
		return refusal(codes.Unimplemented, ReasonStream, info.FullMethod+" is a stream, and streams are not done once", 0)
	}
}

func (c *config) serve(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (any, error) {
	id, err := key(ctx)
	if errors.Is(err, errMissing) {
		if c.Optional {
			return handler(ctx, req)
		}
		return nil, refusal(codes.InvalidArgument, ReasonMissing, "the call needs an "+keyName, 0)
	}
	if err == nil && c.CheckKey != nil {
		err = c.CheckKey(id)
	}
	if err != nil {
		return nil, refusal(codes.InvalidArgument, ReasonMalformed, "the "+keyName+" cannot be used: "+err.Error(), 0)
	}
	k := idempotency.Key{Op: bounded(method), ID: id}
	if c.Scope != nil {
		if k.Scope = bounded(c.Scope(ctx)); k.Scope == "" {
			return nil, refusal(codes.PermissionDenied, ReasonScope, "the call has no scope", 0)
		}
	}
	if a, ok := idempotency.FromContext(ctx); ok && a.Key() == k {
		return handler(ctx, req) // another interceptor in front of this one has begun it
	}
	payload, err := c.Payload(ctx, method, req)
	if err != nil {
		return nil, refusal(codes.InvalidArgument, ReasonPayload, err.Error(), 0)
	}
	a, rec, err := c.begin(ctx, k, method, payload)
	switch {
	case err != nil:
		return c.refuse(ctx, method, k, err, func() (any, error) { return handler(ctx, req) })
	case rec != nil:
		return c.replay(ctx, method, k, rec)
	}
	return c.attempt(ctx, req, method, handler, a)
}

var errMissing = errors.New("there is none")

// key reads the key of a call.
func key(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, keyName)
	switch len(values) {
	case 0:
		return "", errMissing
	case 1:
		return values[0], check(values[0])
	}
	return "", errors.New("there is more than one")
}

func check(key string) error {
	switch {
	case key == "":
		return errors.New("it is empty")
	case len(key) > maxKey:
		return errors.New("it has more than 255 characters")
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return errors.New("it has characters that are not printable ASCII")
		}
	}
	return nil
}

func (c *config) begin(ctx context.Context, k idempotency.Key, method string, payload any) (*idempotency.Attempt, *idempotency.Recorded, error) {
	var opts []idempotency.Option
	if c.Each != nil {
		opts = c.Each(ctx, method)
	}
	opts = append(slices.Clip(opts), idempotency.Wait(c.Wait), idempotency.OnError(action))
	ctx, cancel := context.WithTimeout(ctx, c.Wait+c.StoreTimeout)
	defer cancel()
	return c.store.Begin(ctx, k, payload, opts...)
}

// undone is an outcome that is not to be recorded.
type undone struct{ action idempotency.Action }

func (undone) Error() string { return "the outcome is not recorded" }

// action is the OnError of all attempts.
func action(err error) idempotency.Action {
	var u undone
	if errors.As(err, &u) {
		return u.action
	}
	return idempotency.Forget
}

// attempt runs the handler and records what it returns.
func (c *config) attempt(ctx context.Context, req any, method string, handler grpc.UnaryHandler, a *idempotency.Attempt) (resp any, failed error) {
	err := a.Run(ctx, func(own context.Context) ([]byte, error) {
		resp, failed = handler(context.WithValue(own, clientKey{}, ctx), req)
		st := status.Convert(failed)
		what := c.OnCode(st.Code())
		if failed != nil && a.Err() != nil {
			what = idempotency.Abandon // it was interrupted, and cannot say how far it came
		}
		if what != idempotency.Remember {
			return nil, undone{what}
		}
		if st.Code() != codes.OK {
			a.Without() // the handler has failed, as a function of Do's that returns an error
		}
		return encode(resp, st, c.MaxResponse), nil
	})
	if u := (undone{}); err != nil && (!errors.As(err, &u) || err != error(u)) {
		c.tell(ctx, method, err)
	}
	if refused := instead(a, err); refused != nil {
		return nil, refused
	}
	return resp, failed
}

// instead returns the answer in place of an outcome that may not be the one that counts; nil
// if it is. That holds for outcomes that are not recorded, too: a refusal of a handler that
// was interrupted may come after another's success.
func instead(a *idempotency.Attempt, err error) error {
	switch {
	case a.Certain(err):
		return nil
	case errors.Is(err, idempotency.ErrConflict):
		return refusal(codes.Aborted, ReasonConflict, "a change has come between: the handler has run, and the operations that it gave to Attempt.With were not done", time.Second)
	case errors.Is(err, idempotency.ErrInvalid):
		return refusal(codes.Internal, ReasonInternal, "the outcome cannot be recorded", 0)
	}
	return refusal(codes.Aborted, ReasonInProgress, "the outcome is not recorded yet, or another attempt has taken over", time.Second)
}

// replay returns what was recorded.
func (c *config) replay(ctx context.Context, method string, k idempotency.Key, rec *idempotency.Recorded) (any, error) {
	if rec.Failed {
		return nil, refusal(codes.FailedPrecondition, ReasonFailed, "the call has failed, and is not tried again", 0)
	}
	resp, failed, bad := any(nil), error(nil), error(errOmitted)
	if !rec.Omitted {
		resp, failed, bad = decode(rec.Value)
	}
	switch {
	case errors.Is(bad, errOmitted):
		return nil, refusal(codes.FailedPrecondition, ReasonNotKept, "the call was done, and its response was not kept", 0)
	case bad != nil:
		c.tell(ctx, method, bad)
		return nil, refusalOf(c.store.Ref(k), codes.Internal, ReasonUnreadable, "the recorded response cannot be read", 0)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(replayedName, "true"))
	return resp, failed
}

// refuse answers a call that the store has not begun.
func (c *config) refuse(ctx context.Context, method string, k idempotency.Key, err error, open func() (any, error)) (any, error) {
	var busy *idempotency.InProgressError
	switch {
	case errors.As(err, &busy):
		return nil, refusal(codes.Aborted, ReasonInProgress, "the call is in progress", busy.RetryAfter)
	case errors.Is(err, idempotency.ErrMismatch):
		return nil, refusal(codes.FailedPrecondition, ReasonReused, "the key was used with another message", 0)
	case errors.Is(err, idempotency.ErrUnknown):
		c.tell(ctx, method, err)
		return nil, refusalOf(c.store.Ref(k), codes.FailedPrecondition, ReasonUnknown, "an earlier attempt was interrupted, and its outcome is unknown", 0)
	}
	if gone := ctx.Err(); gone != nil {
		return nil, status.FromContextError(gone).Err()
	}
	c.tell(ctx, method, err)
	var scope *idempotency.ScopeFullError
	switch {
	case errors.As(err, &scope):
		return nil, refusal(codes.ResourceExhausted, ReasonScopeFull, "too many calls of this client are remembered", scope.RetryAfter)
	case errors.Is(err, idempotency.ErrInvalid):
		return nil, refusal(codes.Internal, ReasonInternal, "the call cannot be begun", 0)
	case errors.Is(err, idempotency.ErrUnreadable):
		return nil, refusalOf(c.store.Ref(k), codes.Internal, ReasonUnreadable, "the record cannot be read", 0)
	case c.FailOpen && errors.Is(err, idempotency.ErrUnavailable):
		return open()
	case errors.Is(err, idempotency.ErrFull):
		return nil, refusal(codes.Unavailable, ReasonFull, "no new calls are begun", time.Second)
	}
	return nil, refusal(codes.Unavailable, ReasonUnavailable, "the store cannot be asked", time.Second)
}

func (c *config) tell(ctx context.Context, method string, err error) {
	if c.OnError != nil {
		c.OnError(ctx, method, err)
	}
}

type clientKey struct{}

// Client returns the context of the client's call, which ends when the client cancels, for a
// handler that has been given the attempt's. If there is no interceptor, it returns ctx.
func Client(ctx context.Context) context.Context {
	if c, ok := ctx.Value(clientKey{}).(context.Context); ok {
		return c
	}
	return ctx
}
