package limithttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
	"github.com/etcdkit/etcdkit/internal/supervise"
)

// Outage is what happens to a request while etcd does not answer: see Options.Outage.
type Outage int

// The outage policies.
const (
	// Closed refuses requests: at every moment at most as many hold permits as the limit allows.
	Closed Outage = iota
	// Open runs requests without a permit. While it lasts there is no limit for the processes that
	// cannot reach etcd, and those that can admit as many as the limit allows besides.
	Open
	// Share runs requests without a permit as far as this process's share of the limit allows: the
	// limit divided by the number of sessions that share it, rounded down. Together with the processes
	// that reach etcd, at most twice as many run as the limit allows in one outage; each later cut of
	// other processes can add the limit once more. It needs a limit of all keys together: a concurrency.KeyedLimiter with a total, concurrency.Single of a NewSemaphore, or a
	// Limiter with a method Total that returns that of its KeyedLimiter. See the package's comment.
	Share
)

// Options configure a Middleware or a Transport.
type Options struct {
	// Key returns the key of a request, such as its tenant, of 1 to 255 bytes; limited is false for
	// a request that is not limited. Have it return false for what supervises the service, such as
	// health checks and metrics, or serve those outside of the Middleware: HTTP has no path for them
	// that could pass by default. Calls of gRPC's own health checks and reflection, by gRPC, gRPC-Web or
	// Connect, pass without Key. A key must be authenticated: a client that chooses its key has no
	// limit. An empty key of a limited request is an error of the program: the request is answered
	// with 500. Without a limiter only limited counts, and nil limits all other requests, health checks of
	// HTTP included. Defaults to nothing: with a limiter Key is required.
	Key func(*http.Request) (key string, limited bool)
	// Rate is how often limited requests may begin in the whole fleet: each takes a token of it.
	// It is one rate for all keys together. With a limiter a request takes the permit first and
	// the token under it, immediately before it begins, and releases it if it gets no
	// token. Without one it takes a token alone; MaxWaiters and Each are then errors. Outage
	// cannot be Share with a Rate.
	//
	// A process begins without a token: a request waits up to a second for its first ones, whatever
	// Wait is, and again after a minute without a request. See the package's comment. Defaults to
	// nil: no rate.
	Rate *concurrency.RateLimiter
	// Wait is at most how long a request waits for a permit and a token, together; 0 is not at
	// all, and then only an etcd that does not answer delays the refusal, by
	// concurrency.TryTimeout at most, and a process that has just begun (see Rate). Choose what a
	// client gains from waiting. Defaults to 0, so that a service that is full says so at once, with
	// the time to come back, and no request waits in memory; at most 24 hours.
	Wait time.Duration
	// MaxWaiters refuses to wait if that many requests of the key wait already, in the whole fleet. Choose it below the limit:
	// the requests of a process that has died wait until its lease ends, and get permits meanwhile. It costs etcd
	// what concurrency.MaxWaiters says, and needs Wait. Defaults to 0: any number of requests wait, while
	// concurrency.MaxWaiters(0) waits never.
	MaxWaiters int
	// Each returns options for one request, such as concurrency.Weight and concurrency.MaxHold.
	// Wait has no effect there. Defaults to none.
	Each func(*http.Request) []concurrency.AcquireOption
	// Outage says what happens to requests in an outage of etcd, which begins after Patience.
	// Before that, and for requests that fail for another reason, the policy is Closed. A key, an
	// option or a context that is ErrInvalid without an outage is so in one. Defaults to Closed.
	Outage Outage
	// Patience is how long etcd has to be silent before that is an outage rather than latency. Below
	// about 6 seconds the loss of one member of etcd can count as one, before the client has switched
	// to another member. Defaults to 10 seconds; from 1 millisecond to 24 hours.
	Patience time.Duration
	// Enabled reports whether requests are limited at all. It is called for each request; give it
	// the Load of an atomic.Bool to switch the limit at run time. Requests that run keep their
	// permits. Defaults to always.
	Enabled func() bool
	// Buffer is the largest body of a request, in bytes, that is read before the request asks for a
	// permit: a client that sends its body slowly holds none, and one that leaves while its request
	// waits is noticed. It is memory of each request that waits. A body of unknown length, as in chunks, is not
	// read before, nor a larger one: see the package's comment. A Transport has no use for it.
	// Defaults to 64 KiB; at most 1 GiB, and -1 reads nothing.
	Buffer int64
	// Policy is the name of the limit in RateLimit-Policy and in problems, of printable ASCII
	// characters without quotes and backslashes. A Transport has no use for it. Defaults to
	// "concurrency".
	Policy string
	// OnProblem writes a problem; all headers but Content-Type and Content-Language are set. A
	// Transport has no use for it. Defaults to problem+json in English.
	OnProblem func(http.ResponseWriter, *http.Request, Problem)
	// OnOutage is called when an outage has begun, with its error, and with nil when it has ended: by
	// a request or, if none has waited for etcd in vain for five seconds, in the background, where a panic
	// is logged. One call returns before the next. Defaults to nothing.
	OnOutage func(error)
	// ReportError is called with each error that an operator should know: etcd is unavailable, a
	// request ran without a permit under Open or Share, a permit was lost while its handler ran,
	// or an option is wrong. A full limit or an exceeded rate is no such error. In the background
	// a panic is logged. Defaults to nothing.
	ReportError func(*http.Request, error)
}

// The default and the greatest Buffer.
const (
	defaultBuffer = 64 << 10
	maxBuffer     = 1 << 30
)

// config is Options with their defaults.
type config struct {
	Options
	shared *middleware.Admission
}

// configure returns the config of a middleware. Its error is concurrency.ErrInvalid.
func configure(kind string, lim concurrency.Limiter, o Options) (*config, error) {
	attempted := "limithttp: new " + kind
	if err := o.check(); err != nil {
		return nil, middleware.Invalid(attempted, err)
	}
	if o.Buffer == 0 {
		o.Buffer = defaultBuffer
	}
	if o.Policy == "" {
		o.Policy = "concurrency"
	}
	if o.ReportError == nil {
		o.ReportError = func(*http.Request, error) {}
	}
	shared, err := middleware.New(attempted, middleware.Settings{
		Limiter: lim, Rate: o.Rate, Keyed: o.Key != nil, Each: o.Each != nil, Wait: o.Wait, MaxWaiters: o.MaxWaiters,
		Outage: middleware.Outage(o.Outage), Patience: o.Patience, Enabled: o.Enabled, OnOutage: o.OnOutage,
	})
	if err != nil {
		return nil, err
	}
	return &config{o, shared}, nil
}

// check returns an error for an option that only HTTP has and that is out of range.
func (o *Options) check() error {
	switch {
	case o.Buffer < -1 || o.Buffer > maxBuffer:
		return fmt.Errorf("Options.Buffer %d is not between -1 and %d", o.Buffer, int64(maxBuffer))
	case strings.ContainsFunc(o.Policy, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }):
		return errors.New("Options.Policy has characters other than printable ASCII, or a quote or backslash")
	}
	return nil
}

// limited returns the key of a request, unless the request is not limited.
func (c *config) limited(r *http.Request) (key string, limited bool) {
	if c.shared.Disabled() || r.URL != nil && supervise.Request(r.URL.Path, r.Header.Get) {
		return "", false
	}
	if c.Key == nil { // the rate limits all requests
		return "", true
	}
	return c.Key(r)
}

// each returns the options for one request.
func (c *config) each(r *http.Request) []concurrency.AcquireOption {
	if c.Each == nil {
		return nil
	}
	return c.Each(r)
}
