package idemgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// The names in metadata.
const (
	keyName      = "idempotency-key"
	replayedName = "idempotent-replayed"
)

// UnaryServerInterceptor returns an interceptor that runs a handler once for each
// idempotency-key: see the package's comment. It returns idempotency.ErrInvalid if the store
// is nil, an option is out of range, or Options.Scope is nil and the store is not
// SingleTenant. The interceptor is safe for concurrent use.
func UnaryServerInterceptor(store *idempotency.Store, opts *Options) (grpc.UnaryServerInterceptor, error) {
	c, err := configure("unary server interceptor", store, opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if c.Methods(info.FullMethod) {
			return c.serve(ctx, req, info.FullMethod, handler)
		}
		return pass(ctx, req, handler)
	}, nil
}

// StreamServerInterceptor returns an interceptor that refuses streams of methods that need a
// key, unless PassStreams is set. It returns idempotency.ErrInvalid where
// UnaryServerInterceptor does. The interceptor is safe for concurrent use.
func StreamServerInterceptor(store *idempotency.Store, opts *Options) (grpc.StreamServerInterceptor, error) {
	c, err := configure("stream server interceptor", store, opts)
	if err != nil {
		return nil, err
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if c.PassStreams || !c.Methods(info.FullMethod) {
			return handler(srv, ss)
		}
		return refusal(middleware.Stream, info.FullMethod)
	}, nil
}

// pass runs the handler without a claim. Its word is for an interceptor in front of this one, if that has begun
// the call, and not for the client.
func pass(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, passed(ctx, err)
}

// passed returns the error of a handler that has run without a claim of this interceptor.
func passed(ctx context.Context, err error) error {
	if _, begun := ctx.Value(clientKey{}).(middleware.Client); begun {
		return err
	}
	return middleware.Plain(err)
}

func (c *config) serve(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (any, error) {
	id, err := key(ctx)
	if errors.Is(err, middleware.ErrNoKey) {
		if c.Optional {
			return pass(ctx, req, handler)
		}
		return nil, refusal(middleware.Missing, "its metadata has no "+keyName)
	}
	if err == nil && c.CheckKey != nil {
		err = c.CheckKey(id)
	}
	if err != nil {
		return nil, refusal(middleware.Malformed, err.Error())
	}
	k := idempotency.Key{Op: middleware.Fit(method), ID: id}
	if c.Scope != nil {
		if k.Scope = middleware.Fit(c.Scope(ctx)); k.Scope == "" {
			return nil, refusal(middleware.Scope, "")
		}
	}
	if idempotency.Within(ctx, c.shared.Store, k) {
		return pass(ctx, req, handler) // another interceptor in front of this one has begun it
	}
	payload, err := c.Payload(ctx, method, req)
	if err != nil {
		return nil, refusal(middleware.Body, err.Error())
	}
	var each, own []idempotency.Option
	if c.Each != nil {
		each = c.Each(ctx, method)
	}
	if c.Note != nil {
		own = append(own, idempotency.Note(c.Note(ctx, method, req)))
	}
	returns := rpc.Returns(method)
	own = append(own, idempotency.Returns(returns))
	a, rec, err := c.shared.Begin(ctx, k, payload, each, own...)
	switch {
	case err != nil:
		refused := c.shared.Refuse(ctx, k, err)
		if refused.Open != nil {
			return c.unclaimed(ctx, req, method, handler, refused, err)
		}
		if refused.Report {
			c.ReportError(ctx, method, err)
		}
		if gone := ctx.Err(); gone != nil && refused.Reason == middleware.Unavailable {
			return nil, status.FromContextError(gone).Err()
		}
		return nil, refusalOf(refused)
	case rec != nil:
		return c.replay(ctx, method, returns, k, rec)
	}
	return c.attempt(ctx, req, method, handler, a)
}

// key returns the key of a call, in quotes or without: see middleware.ParseKey.
func key(ctx context.Context) (string, error) {
	text, err := middleware.Single(metadata.ValueFromIncomingContext(ctx, keyName))
	if err != nil {
		return "", err
	}
	return middleware.ParseKey(text, false)
}

// attempt runs the handler and records its outcome.
func (c *config) attempt(ctx context.Context, req any, method string, handler grpc.UnaryHandler, a *idempotency.Attempt) (resp any, failed error) {
	report := func(err error) { c.ReportError(ctx, method, err) }
	refused := c.shared.Run(ctx, a, report, func(own context.Context) middleware.Result {
		client, release := middleware.NewClient(own, Client(ctx))
		defer release()
		resp, failed = handler(context.WithValue(own, clientKey{}, client), req)
		st := statusOf(middleware.Plain(failed))
		if resp == nil && st.Code() == codes.OK {
			return noOutcome
		}
		res := middleware.Result{
			Err: failed, Action: c.after(st),
			Failed: st.Code() != codes.OK, Because: "the handler has returned " + st.Code().String(),
			Encode: func() []byte {
				stored, unkept := encode(resp, st, c.shared.MaxResponse)
				if unkept != nil {
					report(fmt.Errorf("the response of %s is not kept, so duplicates do not get it: %w", method, unkept))
				}
				return stored
			},
		}
		res.Withhold = !res.Failed && res.Lost(own)
		return res
	})
	if refused != nil {
		return nil, refusalOf(*refused)
	}
	return resp, middleware.Plain(failed)
}

// unclaimed runs the handler without a claim, with the context that it has in an attempt.
func (c *config) unclaimed(ctx context.Context, req any, method string, handler grpc.UnaryHandler, refused middleware.Refusal, because error) (resp any, err error) {
	report := func(err error) { c.ReportError(ctx, method, err) }
	refused.RunUnclaimed(ctx, Client(ctx), because, report, func(own context.Context, client middleware.Client) {
		resp, err = handler(context.WithValue(own, clientKey{}, client), req)
	})
	return resp, passed(ctx, err)
}

// noOutcome is the result of a handler that has returned neither a message nor an error with another code than OK, as an
// interceptor behind this one does that recovers a panic and has no named results. grpc.Server makes INTERNAL of it.
var noOutcome = middleware.Result{Action: middleware.Broken.Action(), Failed: true, Because: "the handler has returned neither a message nor an error"}

// after returns what follows a status. OnCode changes nothing where it says what the code stands for.
func (c *config) after(st *status.Status) idempotency.Action {
	if says := c.OnCode(st.Code()); says != RememberFinal(st.Code()) {
		return cmp.Or(says, after(st))
	}
	return after(st)
}

// after returns what follows a status by default. An answer that an outcome is unknown, as of a service behind this one,
// is not the outcome: an operator resolves it.
func after(st *status.Status) idempotency.Action {
	if rpc.SaysUnknown(st) {
		return middleware.Interrupted.Action()
	}
	return RememberFinal(st.Code())
}

// statusOf returns the status that a client gets for a handler's error, as grpc.Server makes it.
func statusOf(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}

// replay answers a duplicate with the recorded outcome.
func (c *config) replay(ctx context.Context, method, returns string, k idempotency.Key, rec *idempotency.Outcome) (any, error) {
	if refused := middleware.Unreplayable(rec); refused != nil {
		return nil, refusalOf(*refused)
	}
	resp, failed, bad := decode(rec.Value)
	if bad == nil && rec.Resolved != "" {
		bad = fits(resp, returns)
	}
	switch {
	case errors.Is(bad, errOmitted):
		return nil, refusalOf(middleware.Refusal{Reason: middleware.NotKept})
	case bad != nil:
		refused, err := c.shared.Undecodable(k, bad)
		c.ReportError(ctx, method, err)
		return nil, refusalOf(refused)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(replayedName, "true"))
	return resp, failed
}

type clientKey struct{}

// Client returns a context that ends when the client cancels or its deadline has passed, and with ctx's attempt at
// the latest. A handler's own context is the attempt's, which does not end with the client. Client's context has the
// values of ctx, so what a handler calls with it through UnaryClientInterceptor has the attempt's keys. Without an
// interceptor, Client returns ctx.
func Client(ctx context.Context) context.Context {
	if c, ok := ctx.Value(clientKey{}).(middleware.Client); ok {
		return c.Of(ctx)
	}
	return ctx
}
