package idemgrpc

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Options configure the interceptors of a server. nil means all defaults.
type Options struct {
	// Scope returns whose call it is: a tenant, an account. It must come from what the
	// client has proved, so what authenticates is chained before. A call with an empty one
	// is answered by PERMISSION_DENIED. Defaults to the empty scope for all, which the
	// store must allow (idempotency.Options.SingleTenant).
	Scope func(context.Context) string
	// Methods tells which methods, by their full names (/package.Service/Method), need a
	// key; others pass as they are. Defaults to NeedsKey: all but health checks, reflection
	// and those without side effects.
	Methods func(fullMethod string) bool
	// Optional lets calls without a key pass, unguarded. Defaults to false: they are
	// answered by INVALID_ARGUMENT.
	Optional bool
	// PassStreams lets streams of such Methods pass, unguarded. Defaults to false: they
	// are answered by UNIMPLEMENTED.
	PassStreams bool
	// CheckKey returns an error for keys that are not random enough; its text goes to
	// the client. Defaults to no check beyond 1 to 255 printable characters of ASCII.
	CheckKey func(key string) error
	// Payload returns what makes two calls with one key the same, in the forms that
	// Store.Begin takes. Defaults to the whole message. An error is answered by
	// INVALID_ARGUMENT.
	Payload func(ctx context.Context, fullMethod string, req any) (any, error)
	// OnCode says what becomes of the call by the code that its handler has returned:
	// Remember has it recorded, Forget gives the key free for the same payload, Abandon leaves
	// the attempt as lost. Defaults to RememberFinal.
	OnCode func(codes.Code) idempotency.Action
	// MaxResponse is the size of a response, in bytes, up to which it is recorded.
	// Defaults to 4 MiB, or what the store takes (idempotency.Options.MaxResult) if that is
	// less.
	MaxResponse int
	// Wait is for how long a duplicate waits for the one in progress. Defaults to 0: it
	// is answered by ABORTED at once. At most 24 hours.
	Wait time.Duration
	// StoreTimeout bounds the asking of etcd before the handler, waiting not counted.
	// Defaults to 5 seconds; at most 24 hours.
	StoreTimeout time.Duration
	// FailOpen runs the handler without any guard if etcd cannot be reached or is full, and
	// nothing was seen of the call (idempotency.ErrUnavailable). A call that was seen in
	// progress, done or lost is not run again, nor is any while etcd refuses the program or
	// the session is closed. Defaults to false: such calls are answered by UNAVAILABLE.
	FailOpen bool
	// Each returns options for one call, such as idempotency.Retain and OnLost.
	// Defaults to none. Wait and OnError have no effect there.
	Each func(ctx context.Context, fullMethod string) []idempotency.Option
	// ReportError is called with what an operator should know: why the store could not be
	// asked, that an outcome was not recorded, or that one is unknown until Resolve
	// (*idempotency.UnknownError). Defaults to nothing.
	ReportError func(ctx context.Context, fullMethod string, err error)
}

// roomForHead is what the recorded form may take besides the message.
const roomForHead = 1 << 10

// config is Options with their defaults.
type config struct {
	Options
	shared middleware.Settings
}

// configure returns the config of a store. Its error is idempotency.ErrInvalid.
func configure(store *idempotency.Store, opts *Options) (*config, error) {
	if store == nil {
		return nil, fmt.Errorf("idemgrpc: %w: the store is nil", idempotency.ErrInvalid)
	}
	c := &config{}
	if opts != nil {
		c.Options = *opts
	}
	c.MaxResponse = cmp.Or(c.MaxResponse, min(4<<20, store.Options().MaxResult-roomForHead))
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 5*time.Second)
	if c.Methods == nil {
		c.Methods = NeedsKey
	}
	if c.Payload == nil {
		c.Payload = whole
	}
	if c.OnCode == nil {
		c.OnCode = RememberFinal
	}
	c.shared = middleware.Settings{Store: store, Scoped: c.Scope != nil, MaxResponse: c.MaxResponse, Wait: c.Wait, StoreTimeout: c.StoreTimeout}
	if err := c.shared.Check(roomForHead); err != nil {
		return nil, fmt.Errorf("idemgrpc: %w: %w", idempotency.ErrInvalid, err)
	}
	return c, nil
}

// RememberFinal has those outcomes recorded that would be the same if the call came again:
// OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and OUT_OF_RANGE. The
// others give the key free.
func RememberFinal(code codes.Code) idempotency.Action {
	switch code {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return idempotency.Remember
	}
	return idempotency.Forget
}
