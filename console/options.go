package console

import (
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/webguard"
)

// ErrInvalid is concurrency.ErrInvalid: an argument or an option is out of range.
var ErrInvalid = concurrency.ErrInvalid

// Options configure a console. nil means all defaults.
type Options struct {
	// Hosts are the host names, without ports, by which the console is reached: requests with another
	// Host header are refused. Defaults to localhost, 127.0.0.1 and [::1].
	Hosts []string

	// Authorize decides about each page and each action. An error refuses it, with the error's text. It is called for
	// pages with the Verb Read, and for each action that a page would offer and that is requested. It is not
	// called for the style, the script and the icon of the console, which are the same everywhere. It must
	// be safe for concurrent use. Defaults to nil: every request that reaches the console may read, and there are
	// no actions.
	Authorize func(*http.Request, Action) error

	// Actor returns the name of the operator who makes a request, for the log and as the author of what an
	// action stores: a limit, a pause, a notice, an outcome, a change. It is called for actions that are refused, too.
	// An empty name is that of the session's owner. Defaults to the address of the client.
	Actor func(*http.Request) string

	// Logger receives each action, as information, and each failure and each action that is refused, as a
	// warning: of those that are refused, ten in a second at most. An action whose form was not read, as of a
	// request for a host that is not in Hosts, is logged without its name and the operator. Defaults to no logging.
	Logger *zap.Logger

	// Elsewhere returns the address of the console of another namespace below the same prefix, as a link of this
	// console's pages, or "" if there is none. An alert may name any namespace: if etcd denies this console to read whether it
	// exists, Elsewhere decides. It must be safe for concurrent use. Defaults to nil: the overview
	// names other namespaces without a link.
	Elsewhere func(namespace string) string

	// Cluster is the name of the etcd cluster, as the label etcdkit_cluster of the metrics has it: pages show it, and an alert
	// with another one has no page. Defaults to none: that label is ignored.
	Cluster string

	// MaxViewers bounds the requests that are answered at the same time; more of them get the status
	// 503. A request counts while its answer is made: not while a client sends its form or receives the
	// answer, for which the http.Server should have timeouts. Defaults to 64.
	MaxViewers int
}

// Verb is what a request does.
type Verb string

// The verbs of a console.
const (
	Read        Verb = "read"
	SetLimit    Verb = "set-limit"    // of a semaphore, of a limiter's default, or of its key
	RequestStop Verb = "request-stop" // asks a holder to release its permit, or a waiter to withdraw
	Evict       Verb = "evict"        // a request, at once
	Pause       Verb = "pause"        // a job
	Resume      Verb = "resume"
	Unlock      Verb = "unlock"
	Trigger     Verb = "trigger"     // asks the processes of a job to run it now
	Resolve     Verb = "resolve"     // records the outcome of a request of unknown outcome
	Delete      Verb = "delete"      // the record of a request
	EndSession  Verb = "end-session" // of a process, with all that it holds and waits for
)

// Action is what Options.Authorize decides about.
type Action struct {
	Verb Verb
	// Name is that of the queue, as semaphore/charge, of the job, as job/invoices, of the store, as
	// requests/orders, or of a process, as process/ and its lease in sixteen digits. It is empty for a page that
	// shows several of them. Lists show all names; a search, the page of a process and the changes leave out
	// those with which a call of Read is refused. What exists has one name: others are refused. An action on
	// many targets is asked for with each of them.
	Name string
	// Target is the token of the request, or of the run that Unlock ends, the reference of the record,
	// "total" where SetLimit changes the total of a limiter, or "default" where it removes the limit of a key. It
	// is empty where there is none: for a cooldown that Unlock ends, and where SetLimit changes another limit. It
	// is empty as well when a page asks whether to offer an action on its requests, records or run.
	Target string
}

// withDefaults returns a checked copy in which nothing is left open.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	hosts, err := webguard.NewHosts(c.Hosts)
	if err != nil {
		return c, engine.Invalid("Options.Hosts has %w", err)
	}
	c.Hosts = hosts
	if c.Actor == nil {
		c.Actor = func(r *http.Request) string { return r.RemoteAddr }
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	switch {
	case c.MaxViewers < 0:
		return c, engine.Invalid("Options.MaxViewers %d is negative", c.MaxViewers)
	case c.MaxViewers == 0:
		c.MaxViewers = 64
	}
	return c, nil
}

// may reports whether a request may do something.
func (o *Options) may(r *http.Request, a Action) error {
	switch {
	case o.Authorize != nil:
		return o.Authorize(r, a)
	case a.Verb == Read:
		return nil
	}
	return errors.New("this console is read-only: Options.Authorize, or etcdkit console --write, allows actions")
}
