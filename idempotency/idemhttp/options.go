package idemhttp

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Options configure a Middleware and its PolicyHandler. nil means all defaults.
type Options struct {
	// Scope returns whose request it is: a tenant, an account. It must come from what the
	// client has proved, so what authenticates stands before the Middleware. A request
	// with an empty one is answered by 403. Defaults to the empty scope for all, which
	// the store must allow (idempotency.Options.SingleTenant).
	Scope func(*http.Request) string
	// Op returns what is requested: one key is free for each operation. A request with an
	// empty one is answered by 500. Defaults to ByRoute.
	Op func(*http.Request) string
	// Host returns for which virtual host a request is: a key that comes again for another
	// one is refused, whatever Op and Payload are. Empty means any. Requests that were
	// begun by a release without Host match any, too. Defaults to ByHost.
	Host func(*http.Request) string
	// Methods are those that need a key, in any case; others pass as they are. Defaults to
	// POST and PATCH.
	Methods []string
	// Optional lets requests without a key pass, unguarded. Defaults to false: they are
	// answered by 400.
	Optional bool
	// Strict refuses keys without quotes, which the draft does not allow and many
	// clients send. Defaults to false: key and "key" are the same.
	Strict bool
	// CheckKey returns an error for keys that are not random enough, or not of the form
	// that clients were told; the error's text goes to the client. Defaults to no check
	// beyond 1 to 255 characters.
	CheckKey func(key string) error
	// Header is the name of the key's header. Defaults to Idempotency-Key.
	Header string
	// ReplayedHeader marks replays, with the value true. Defaults to Idempotent-Replayed.
	ReplayedHeader string
	// Docs is the URI where the PolicyHandler, or another description, is published: the
	// answers of the Middleware link to it. Defaults to none.
	Docs string
	// MaxRequest bounds the body of a request, in bytes, since it is read as a whole
	// before the handler. Defaults to 1 MiB; at most 1 GiB.
	MaxRequest int64
	// MaxResponse is the size of a response's body, in bytes, up to which it is recorded
	// and held back until then. Defaults to 1 MiB, or what the store takes
	// (idempotency.Options.MaxResult) if that is less.
	MaxResponse int
	// Payload returns what makes two requests with one key the same, in the forms that
	// Store.Begin takes. Defaults to Exact; see also CanonicalJSON. An error is
	// answered by 400.
	Payload func(r *http.Request, body []byte) (any, error)
	// OnStatus says what becomes of the request by its response's status: Remember has
	// it recorded, Forget gives the key free for the same payload, Abandon leaves the attempt
	// as lost. Defaults to RememberFinal. A handler that knows better calls Decide.
	OnStatus func(status int) idempotency.Action
	// NeverStore names headers of responses that are not recorded, besides those that
	// never are. Defaults to none.
	NeverStore []string
	// Wait is for how long a duplicate waits for the one in progress. Defaults to 0: it
	// is answered by 409 at once. At most 24 hours.
	Wait time.Duration
	// StoreTimeout bounds the asking of etcd before the handler, waiting not counted.
	// Defaults to 5 seconds; at most 24 hours.
	StoreTimeout time.Duration
	// FailOpen runs the handler without any guard if etcd cannot be reached or is full, and
	// nothing was seen of the request (idempotency.ErrUnavailable). A request that was seen
	// in progress, done or lost is not run again, nor is any while etcd refuses the program
	// or the session is closed. Defaults to false: such requests are answered by 503.
	FailOpen bool
	// Each returns options for one request, such as idempotency.Retain and OnLost.
	// Defaults to none. Wait, OnError and, unless
	// Host returns an empty one, AlsoCompare have no effect there.
	Each func(*http.Request) []idempotency.Option
	// OnProblem writes an answer of the Middleware's own: the headers are set, except for
	// Content-Type. Defaults to problem+json.
	OnProblem func(http.ResponseWriter, *http.Request, Problem)
	// ReportError is called with what an operator should know: why the store could not be
	// asked, that an outcome was not recorded, or that one is unknown until Resolve
	// (*idempotency.UnknownError). Defaults to nothing.
	ReportError func(*http.Request, error)
}

// roomForHead is what the recorded status and headers may take of the store's MaxResult.
const roomForHead = 64 << 10

// maxRequest is the greatest MaxRequest.
const maxRequest = 1 << 30

// config is Options with their defaults.
type config struct {
	Options
	shared middleware.Settings
	never  map[string]bool
	// custom says that Payload is not Exact.
	custom bool
}

// configure returns the config of a store. Its error is idempotency.ErrInvalid.
func configure(store *idempotency.Store, opts *Options) (*config, error) {
	if store == nil {
		return nil, fmt.Errorf("idemhttp: %w: the store is nil", idempotency.ErrInvalid)
	}
	c := &config{never: map[string]bool{}}
	if opts != nil {
		c.Options = *opts
	}
	o := &c.Options
	o.Methods = methods(o.Methods)
	o.Header = cmp.Or(o.Header, "Idempotency-Key")
	o.ReplayedHeader = cmp.Or(o.ReplayedHeader, "Idempotent-Replayed")
	o.MaxRequest = cmp.Or(o.MaxRequest, 1<<20)
	o.MaxResponse = cmp.Or(o.MaxResponse, min(1<<20, store.Options().MaxResult-roomForHead))
	o.StoreTimeout = cmp.Or(o.StoreTimeout, 5*time.Second)
	if o.Op == nil {
		o.Op = ByRoute
	}
	if o.Host == nil {
		o.Host = ByHost
	}
	if c.custom = o.Payload != nil; !c.custom {
		o.Payload = Exact
	}
	if o.OnStatus == nil {
		o.OnStatus = RememberFinal
	}
	for _, name := range o.NeverStore {
		c.never[http.CanonicalHeaderKey(name)] = true
	}
	c.shared = middleware.Settings{Store: store, Scoped: o.Scope != nil, MaxResponse: o.MaxResponse, Wait: o.Wait, StoreTimeout: o.StoreTimeout}
	if err := cmp.Or(o.check(), c.shared.Check(roomForHead)); err != nil {
		return nil, fmt.Errorf("idemhttp: %w: %w", idempotency.ErrInvalid, err)
	}
	return c, nil
}

// check returns an error for an option that is out of range.
func (o *Options) check() error {
	if i := slices.IndexFunc(o.Methods, func(m string) bool { return !token(m) }); i >= 0 {
		return fmt.Errorf("Options.Methods has %q, which is not a method of HTTP, such as POST", o.Methods[i])
	}
	if o.MaxRequest < 0 || o.MaxRequest > maxRequest {
		return fmt.Errorf("Options.MaxRequest %d is not between 0 and %d", o.MaxRequest, int64(maxRequest))
	}
	if u, err := url.Parse(o.Docs); err != nil || u.Fragment != "" {
		return fmt.Errorf("Options.Docs %q is not a URI without a fragment", o.Docs)
	}
	return nil
}

// methods returns those that are guarded, in the case in which HTTP has them: clients do not send
// post, so as it is written it would guard nothing.
func methods(from []string) (all []string) {
	for _, m := range from {
		all = append(all, strings.ToUpper(m))
	}
	if len(all) == 0 {
		all = []string{http.MethodPost, http.MethodPatch}
	}
	return all
}

// token tells whether a text can be a method (RFC 9110, 5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// ByRoute tells operations apart by method and path: a key that comes again at another
// path is another request. That holds for the path that the client has sent, and for what
// http.StripPrefix or a rewriting in front has made of it.
func ByRoute(r *http.Request) string { return r.Method + " " + route(r) }

// ByHost tells virtual hosts apart by the name that the client has sent, without the port, in
// lower case. An address is none: it says which instance of a fleet is meant, if that.
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

// ByPattern tells operations apart by the pattern of http.ServeMux that has matched: a key
// that comes again at another path of the same pattern is refused, since Exact has the
// path; with a Payload that has not, it is a duplicate. The Middleware has to stand behind the
// ServeMux: a request that none has matched is answered by 500.
func ByPattern(r *http.Request) string {
	if r.Pattern == "" {
		return ""
	}
	return r.Method + " " + r.Pattern
}

// OneForAll is an Op that has each key be used once in the whole scope: a key that comes
// again at another path or with another method is refused, since Exact has both; with a Payload
// that has not, it is a duplicate.
func OneForAll(*http.Request) string { return "any" }

// RememberFinal has those responses recorded that would be the same if the request came
// again: all but 5xx, 401, 403, 407, 408, 421, 425, 429. Those give the key free for the same
// payload, so they must not be given while the work goes on, as http.TimeoutHandler does behind the Middleware.
func RememberFinal(status int) idempotency.Action {
	switch {
	case status >= 500:
		return idempotency.Forget
	case slices.Contains([]int{401, 403, 407, 408, 421, 425, 429}, status):
		return idempotency.Forget
	}
	return idempotency.Remember
}
