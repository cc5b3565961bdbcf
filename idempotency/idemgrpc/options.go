package idemgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// Options configure the interceptors of a server. nil means all defaults.
type Options struct {
	// Scope returns the tenant or account that made the call. It must be authenticated, so
	// chain authentication before the interceptor. A call with an empty scope is answered with
	// PERMISSION_DENIED. Defaults to one empty scope for all calls, which the store must allow
	// (idempotency.Options.SingleTenant). If a running service gets one, or another, the retries of calls that have an
	// outcome are new calls, and execute again.
	Scope func(context.Context) string
	// Methods reports whether a method, by its full name (/package.Service/Method), needs a
	// key; calls of others pass unchanged. Defaults to NeedsKey: all but health checks,
	// reflection and methods without side effects.
	Methods func(fullMethod string) bool
	// Optional runs the handler for calls without a key, each time and without a claim. Defaults
	// to false: they are answered with INVALID_ARGUMENT.
	Optional bool
	// PassStreams runs the handlers of streams of such Methods, each time and without a claim.
	// Defaults to false: such streams are answered with UNIMPLEMENTED.
	PassStreams bool
	// CheckKey returns an error for a key that is not random enough; the client gets the
	// error's text. Defaults to no check beyond 1 to 255 printable ASCII characters. Those that
	// have a meaning in a Structured Field, such as spaces and commas, need quotes around the key.
	CheckKey func(key string) error
	// Payload returns the payload of a call, in a form that Store.Begin takes. If two calls with
	// one key have different payloads, the second is answered with FAILED_PRECONDITION. A call
	// for which Payload returns an error is answered with INVALID_ARGUMENT. Defaults to the whole
	// message, however it was encoded.
	Payload func(ctx context.Context, fullMethod string, req any) (any, error)
	// OnCode decides what happens to the call, by the code that its handler has returned:
	// Remember records the outcome, Forget releases the key for the same payload, Abandon
	// leaves the attempt as lost. DefaultAction, and what RememberFinal returns, change nothing: then a
	// status that an outcome is unknown (ReasonUnknown) is not recorded, all others are by RememberFinal. With
	// idempotency.Refuse, Forget counts as Abandon. A handler overrides OnCode by returning
	// idempotency.NothingDone or idempotency.Permanent of its error; the client gets the status of
	// the error in it. Defaults to DefaultAction.
	OnCode func(codes.Code) idempotency.Action
	// MaxResponse is the largest response, in bytes, that is recorded. Defaults to 4 MiB, or
	// what the store records (idempotency.Options.MaxResult) if that is less.
	MaxResponse int
	// Wait is at most how long a duplicate waits for the attempt in progress; 0 is not at
	// all, and the duplicate is answered with ABORTED at once. Defaults to 0, where
	// idempotency.Do waits until its ctx is done; at most 24 hours.
	Wait time.Duration
	// StoreTimeout is at most how long a call waits for etcd before its handler runs, in
	// addition to Wait; its first answer is waited for that long whatever Wait is. After a call that etcd
	// has not answered, the others do not wait, until etcd answers: see "Without etcd" in the package's
	// comment. If it is shorter than an election of etcd, about 3 seconds, an election counts as an outage,
	// in which FailOpen can execute a call twice. Defaults to 5 seconds; at most 24 hours.
	StoreTimeout time.Duration
	// FailOpen runs the handler without a claim, so possibly once for each duplicate, if a call cannot begin
	// because etcd is unavailable or nearly full, and nothing else is known of the call
	// (idempotency.ErrUnseen). A call that was seen in progress, done or lost does not run
	// again; neither does any call while etcd denies access or the session is closed, nor one whose
	// attempt in this process has not been recorded. While etcd is away, handlers run at once. Such
	// a handler has no attempt, and the context and the ChildKey of one: what it calls has the keys of an attempt. In one
	// process, a duplicate waits for it as for an attempt. A client whose deadline is below StoreTimeout gets an answer
	// only once the outage is known; Store.Stats counts these runs (Unclaimed). It is ErrInvalid with a store whose OnLost is Refuse, and has no effect for a call with that. Defaults
	// to false: such calls are answered with UNAVAILABLE.
	FailOpen bool
	// Each returns options for one call, such as idempotency.Retain and OnLost. Wait and
	// OnError have no effect there. Defaults to none.
	Each func(ctx context.Context, fullMethod string) []idempotency.Option
	// Note returns a text by which an operator recognizes the call, such as an order number, stored in
	// plain text: see idempotency.Note. A handler that learns it later calls Attempt.SetNote. Defaults to
	// none.
	Note func(ctx context.Context, fullMethod string, req any) string
	// ShowNote puts the note into the client's status when the outcome is unknown (MetadataNote). Defaults
	// to false: the client gets the reference of the record, and the note is the operator's.
	ShowNote bool
	// ReportError is called with each error that an operator should know: etcd is
	// unavailable, an outcome was not recorded, or an outcome is unknown until Resolve
	// (*idempotency.UnknownError), when its attempt ends and for each duplicate; a message is not kept
	// since no duplicate could read it, its Codec has failed, or it is too large for etcd. Defaults to nothing.
	ReportError func(ctx context.Context, fullMethod string, err error)
}

// roomForHead is the part of the store's MaxResult that is for the rest of the recorded form.
const roomForHead = 1 << 10

// config is Options with their defaults.
type config struct {
	Options
	shared middleware.Settings
}

// configure returns the config of an interceptor. Its error is idempotency.ErrInvalid.
func configure(interceptor string, store *idempotency.Store, opts *Options) (*config, error) {
	c := &config{}
	if opts != nil {
		c.Options = *opts
	}
	if c.Methods == nil {
		c.Methods = NeedsKey
	}
	if c.Payload == nil {
		c.Payload = whole
	}
	if c.OnCode == nil {
		c.OnCode = func(codes.Code) idempotency.Action { return idempotency.DefaultAction }
	}
	if c.ReportError == nil {
		c.ReportError = func(context.Context, string, error) {}
	}
	c.shared = middleware.Settings{Store: store, Via: forms.GRPC, ShowNote: c.ShowNote, Scoped: c.Scope != nil, FailOpen: c.FailOpen, MaxResponse: c.MaxResponse, Wait: c.Wait, StoreTimeout: c.StoreTimeout}
	if err := c.shared.Complete(4<<20, roomForHead); err != nil {
		return nil, middleware.Invalid("idemgrpc: new "+interceptor, err)
	}
	return c, nil
}

// RememberFinal returns what follows a code by default. It returns idempotency.Remember for OK,
// INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION and OUT_OF_RANGE, and Forget for
// the other codes, after which a repetition may succeed. Forget releases the key for the same
// payload. With idempotency.Refuse, Forget counts as Abandon: no code proves that nothing was done.
func RememberFinal(code codes.Code) idempotency.Action {
	return middleware.EndOfCode(uint32(code)).Action()
}
