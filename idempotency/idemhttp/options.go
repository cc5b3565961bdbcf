package idemhttp

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// Options configure a Middleware and its PolicyHandler. nil means all defaults.
//
// Payload, Host, Each, Note, ReportError and OnProblem get a request of their own: they may read its body or its form,
// and what they parse does not reach the handler. Op, Scope and CheckKey are called before the body is read, and must not
// read it: the request is answered with 500 then.
type Options struct {
	// Scope returns the tenant or account that sent the request. It must be authenticated, so
	// authentication belongs in front of the Middleware. A request with an empty scope is
	// answered with 403. Defaults to one empty scope for all requests, which the store must
	// allow (idempotency.Options.SingleTenant). If a running service gets one, or another, the retries of
	// requests that have an outcome are new requests, and execute again.
	Scope func(*http.Request) string
	// Op returns the requested operation, Key.Op of package idempotency: the same key with
	// another operation is another request. A request with an empty operation is answered with
	// 500. After a change, as for Scope, retries execute again. Defaults to ByRoute.
	Op func(*http.Request) string
	// Host returns the virtual host of the request. A key that was used for another host is
	// refused with 422, whatever Op and Payload are; the problem's detail says so, and
	// ReportError gets the host. Empty matches any host, and so does a record without
	// one. A header such as X-Forwarded-Host is the client's unless a proxy replaces it. If a running
	// service gets another Host, retries of requests that have a record are refused with 422. Change it in two
	// steps: return "" until the records with the former host have expired (the store's Retain, and its
	// RetainUnknown for what is unknown), and then the new name. Defaults to ByHost.
	Host func(*http.Request) string
	// Methods are the methods that need a key, in any letter case; other requests pass
	// unchanged. The first PUT or DELETE that passes with a key is reported to ReportError.
	// Defaults to POST and PATCH.
	Methods []string
	// Optional runs the handler for requests without a key, each time and without a claim. The
	// first one with a key in another header, such as X-Idempotency-Key, is reported to
	// ReportError. Defaults to false: they are answered with 400.
	Optional bool
	// Strict refuses keys without quotes, which the draft forbids and many clients send.
	// Defaults to false: key and "key" are the same.
	Strict bool
	// CheckKey returns an error for a key that is not random enough, or not in the form that
	// clients were given; the client gets the error's text. Defaults to no check beyond 1 to
	// 255 characters.
	CheckKey func(key string) error
	// Header is the header with the key. Defaults to Idempotency-Key.
	Header string
	// ReplayedHeader is the header that a replay has, with the value true. A header of that name that a
	// handler sets is not recorded. Defaults to Idempotent-Replayed.
	ReplayedHeader string
	// Docs is the URI at which the PolicyHandler, or another description, is published: the
	// Middleware's problems link to it. Defaults to none.
	Docs string
	// MaxRequest is the largest body of a request, in bytes; the whole body is read before the
	// handler runs. Defaults to 1 MiB; at most 1 GiB.
	MaxRequest int64
	// MaxResponse is the largest body of a response, in bytes, that is recorded, and held in
	// memory until then. Defaults to 1 MiB, or what the store records
	// (idempotency.Options.MaxResult) if that is less.
	MaxResponse int
	// Payload returns the payload of a request, in a form that Store.Begin takes. If two requests
	// with one key have different payloads, the second is answered with 422. A request for which
	// Payload returns an error is answered with 400. So is one whose body is empty although its type is
	// JSON or multipart, if it has no Content-Length: a client that sends no body has to send a
	// Content-Length of 0. ReportError gets that too, since a handler in front may have read the body.
	// Payload must neither change nor keep the body, whose
	// buffer may be used for another request. If a running service gets another Payload, retries of
	// requests that have a record are refused with 422. To compare more than before, keep Payload, have Each
	// return idempotency.AlsoCompare, and Host "". Defaults to Content; see also Exact and CanonicalJSON.
	Payload func(r *http.Request, body []byte) (any, error)
	// OnStatus decides what happens to the request, by the status of its response: Remember
	// records the response, Forget releases the key for the same payload, Abandon leaves the
	// attempt as lost. DefaultAction, and what RememberFinal returns, change nothing: then a 409 with
	// Retry-After and an unknown outcome are not recorded, all other statuses are by RememberFinal. With
	// idempotency.Refuse, Forget counts as Abandon. Of a call of Connect, gRPC or gRPC-Web, the status is the
	// one that Connect gives to its code, and the default is what idemgrpc.RememberFinal returns for the
	// code. A handler overrides OnStatus with Decide. Defaults to DefaultAction.
	OnStatus func(status int) idempotency.Action
	// NeverStore are response headers that are not recorded, in addition to those that never
	// are. Defaults to none.
	NeverStore []string
	// Wait is at most how long a duplicate waits for the attempt in progress; 0 is not at
	// all, and the duplicate is answered with 409 at once. Defaults to 0, where
	// idempotency.Do waits until its ctx is done; at most 24 hours.
	Wait time.Duration
	// StoreTimeout is at most how long a request waits for etcd before its handler runs, in
	// addition to Wait; its first answer is waited for that long whatever Wait is. After a request that
	// etcd has not answered, the others do not wait, until etcd answers: see "Without etcd" in the
	// package's comment. If it is shorter than an election of etcd, about 3 seconds, an election counts as
	// an outage, in which FailOpen can execute a request twice. Defaults to 5 seconds; at most 24 hours.
	StoreTimeout time.Duration
	// FailOpen runs the handler without a claim, so possibly once for each duplicate, if a request cannot begin
	// because etcd is unavailable or nearly full, and nothing else is known of the request
	// (idempotency.ErrUnseen). A request that was seen in progress, done or lost does not
	// run again; neither does any request while etcd denies access or the session is closed, nor one
	// whose attempt in this process has not been recorded. While etcd is away, handlers run at once.
	// Such a handler has no attempt, and the context and the ChildKey of one: what it sends has the keys of an attempt. In
	// one process, a duplicate waits for it as for an attempt. A client whose deadline is below StoreTimeout gets an
	// answer only once the outage is known; Store.Stats counts these runs (Unclaimed).
	// It is ErrInvalid with a store whose OnLost is Refuse, and has no effect for a request with that.
	// Defaults to false: such requests are answered with 503.
	FailOpen bool
	// Each returns options for one request, such as idempotency.Retain and OnLost. Wait and
	// OnError have no effect there; AlsoCompare has one only if Host returns an empty host.
	// Defaults to none.
	Each func(*http.Request) []idempotency.Option
	// Note returns a text by which an operator recognizes the request, such as an order number, stored
	// in plain text: see idempotency.Note. A handler that learns it later calls Attempt.SetNote. Defaults to
	// none.
	Note func(r *http.Request, body []byte) string
	// ShowNote puts the note into the client's problem when the outcome is unknown (Problem.Note). Defaults
	// to false: the client gets the reference of the record, and the note is the operator's.
	ShowNote bool
	// OnProblem writes a problem; all headers but Content-Type and Content-Language are set. Defaults to
	// problem+json in English, and for a call of gRPC, gRPC-Web or Connect to an error of its protocol.
	OnProblem func(http.ResponseWriter, *http.Request, Problem)
	// ReportError is called with each error that an operator should know: etcd is
	// unavailable, an outcome was not recorded, or an outcome is unknown until Resolve
	// (*idempotency.UnknownError), when its attempt ends and for each duplicate; a response is not kept
	// since its Codec has failed, or it is too large for etcd; a request with a key passes without a claim, see Methods and
	// Optional. Defaults to nothing.
	ReportError func(*http.Request, error)
}

// roomForHead is the part of the store's MaxResult that is for status and headers.
const roomForHead = 64 << 10

// defaultHeader is the header with the key.
const defaultHeader = "Idempotency-Key"

// maxRequest is the greatest MaxRequest.
const maxRequest = 1 << 30

// config is Options with their defaults.
type config struct {
	Options
	shared middleware.Settings
	never  map[string]bool // headers that are not recorded
	// ignored are the keys of requests that pass.
	ignored ignored
	// custom says that Payload is not Content.
	custom bool
}

// configure returns the config of a handler. Its error is idempotency.ErrInvalid.
func configure(handler string, store *idempotency.Store, opts *Options) (*config, error) {
	c := &config{never: maps.Clone(neverStored)}
	if opts != nil {
		c.Options = *opts
	}
	o := &c.Options
	o.Methods = methods(o.Methods)
	o.Header = cmp.Or(o.Header, defaultHeader)
	o.ReplayedHeader = http.CanonicalHeaderKey(cmp.Or(o.ReplayedHeader, "Idempotent-Replayed"))
	o.MaxRequest = cmp.Or(o.MaxRequest, 1<<20)
	if o.Op == nil {
		o.Op = ByRoute
	}
	if o.Host == nil {
		o.Host = ByHost
	}
	if c.custom = o.Payload != nil; !c.custom {
		o.Payload = Content
	}
	if o.OnStatus == nil {
		o.OnStatus = func(int) idempotency.Action { return idempotency.DefaultAction }
	}
	if o.ReportError == nil {
		o.ReportError = func(*http.Request, error) {}
	}
	o.Payload = unlessEmpty(o.Payload, o.ReportError)
	for _, name := range o.NeverStore {
		c.never[http.CanonicalHeaderKey(name)] = true
	}
	c.shared = middleware.Settings{Store: store, Via: forms.HTTP, ShowNote: o.ShowNote, Scoped: o.Scope != nil, FailOpen: o.FailOpen, MaxResponse: o.MaxResponse, Wait: o.Wait, StoreTimeout: o.StoreTimeout}
	if err := cmp.Or(o.check(), c.shared.Complete(1<<20, roomForHead)); err != nil {
		return nil, middleware.Invalid("idemhttp: new "+handler, err)
	}
	return c, nil
}

// check returns an error for an option that is out of range.
func (o *Options) check() error {
	if i := slices.IndexFunc(o.Methods, func(m string) bool { return !token(m) }); i >= 0 {
		return fmt.Errorf("Options.Methods has %q, which is not a method of HTTP, such as POST", o.Methods[i])
	}
	if !token(o.Header) || !token(o.ReplayedHeader) {
		return fmt.Errorf("Options.Header %q or ReplayedHeader %q is not a name of a header of HTTP", o.Header, o.ReplayedHeader)
	}
	if o.MaxRequest < 0 || o.MaxRequest > maxRequest {
		return fmt.Errorf("Options.MaxRequest %d is not between 0 and %d", o.MaxRequest, int64(maxRequest))
	}
	if u, err := url.Parse(o.Docs); err != nil || u.Fragment != "" {
		return fmt.Errorf("Options.Docs %q is not a URI without a fragment", o.Docs)
	}
	return nil
}

// methods returns the methods that need a key, in upper case: clients do not send post, so as
// it is written it would match nothing.
func methods(from []string) (all []string) {
	for _, m := range from {
		all = append(all, strings.ToUpper(m))
	}
	if len(all) == 0 {
		all = []string{http.MethodPost, http.MethodPatch}
	}
	return all
}

// token reports whether s can be a method, or the name of a header (RFC 9110, 5.6.2).
func token(s string) bool { return middleware.Visible(s, "\"(),/:;<=>?@[\\]{}") }

// ByRoute returns method and path: the same key at another path is another request. The path is the
// one that the client has sent, whatever http.StripPrefix, a router or a rewriting in front of the
// Middleware has made of it, and however its characters were percent-encoded: see Content.
func ByRoute(r *http.Request) string { return r.Method + " " + pathOf(sent(r)) }

// ByHost returns the host name of the request, in lower case and without the port. It returns "" for
// an address, which identifies an instance of a fleet rather than a virtual host. Behind a proxy that
// sends the name of the backend in place of the client's, each instance has a name of its own, and a
// retry that reaches another one is refused: let the proxy send the client's Host, or set
// Options.Host.
func ByHost(r *http.Request) string {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// ByPattern returns the pattern of http.ServeMux that has matched. The same key at another path
// of the pattern is refused, since Content includes the path; with a Payload that does not, it is
// a duplicate. The Middleware has to be behind the ServeMux: a request without a pattern is
// answered with 500.
func ByPattern(r *http.Request) string {
	if r.Pattern == "" {
		return ""
	}
	return r.Method + " " + r.Pattern
}

// OneForAll is an Op for which a scope can use each key once. The same key at another path or
// with another method is refused, since Content includes both; with a Payload that does not, it is
// a duplicate.
func OneForAll(*http.Request) string { return "any" }

// RememberFinal returns what follows a status by default. It returns idempotency.Forget for 5xx, 401,
// 403, 407, 408, 421, 423, 425, 429, 449 and 499, after which a repetition may succeed, and Remember for
// all other statuses. Forget releases the key for the same payload, so a handler must not send such a
// status while its work continues, as http.TimeoutHandler behind the Middleware does. With
// idempotency.Refuse, Forget counts as Abandon: no status proves that nothing was done.
func RememberFinal(status int) idempotency.Action { return middleware.EndOfStatus(status).Action() }
