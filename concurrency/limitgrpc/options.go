package limitgrpc

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
	"github.com/etcdkit/etcdkit/internal/supervise"
)

// Outage is what happens to a call while etcd does not answer: see Options.Outage.
type Outage int

// The outage policies.
const (
	// Closed refuses calls: at every moment at most as many hold permits as the limit allows.
	Closed Outage = iota
	// Open runs calls without a permit. While it lasts there is no limit for the processes that
	// cannot reach etcd, and those that can admit as many as the limit allows besides.
	Open
	// Share runs calls without a permit as far as this process's share of the limit allows: the
	// limit divided by the number of sessions that share it, rounded down. Together with the processes
	// that reach etcd, at most twice as many run as the limit allows in one outage; each later cut of
	// other processes can add the limit once more. It needs a limit of all keys together: a concurrency.KeyedLimiter with a total, concurrency.Single of a NewSemaphore, or a
	// Limiter with a method Total that returns that of its KeyedLimiter. See the package's comment.
	Share
)

// Options configure the interceptors.
type Options struct {
	// Key returns the key of a call by its context and full method (/package.Service/Method), such as
	// its tenant, of 1 to 255 bytes; limited is false for a call that is not limited. On a server a key
	// must be authenticated: a client that chooses its key has no limit. An empty key of a limited call
	// is an error of the program: the call ends with INTERNAL. Without a limiter only limited counts,
	// and nil limits the calls of all Methods. Defaults to nothing: with a limiter Key is required.
	Key func(ctx context.Context, fullMethod string) (key string, limited bool)
	// Methods reports whether calls of a method, by its full name, are limited at all; calls of others
	// pass, without Key. Defaults to all but gRPC's own health checks and reflection: an
	// orchestrator that gets no answer to a health check ends the process. Give a function that returns true to limit those
	// as well.
	Methods func(fullMethod string) bool
	// Rate is how often limited calls may begin in the whole fleet: each takes a token of it. It
	// is one rate for all keys together. With a limiter a call takes the permit first and the
	// token under it, immediately before it begins, and releases it if it gets no token.
	// Without one it takes a token alone; MaxWaiters and Each are then errors. Outage cannot be
	// Share with a Rate.
	//
	// A process begins without a token: a call waits up to a second for its first ones, whatever Wait
	// is, and again after a minute without a call. See the package's comment. Defaults to nil: no rate.
	Rate *concurrency.RateLimiter
	// Wait is at most how long a call waits for a permit and a token, together; 0 is not at all,
	// and then only an etcd that does not answer delays the refusal, by concurrency.TryTimeout at
	// most, and a process that has just begun (see Rate). Choose what a client gains from waiting.
	// Defaults to 0, so that a service that is full says so at once, with the time to come back, and no
	// call waits in memory; at most 24 hours.
	Wait time.Duration
	// MaxWaiters refuses to wait if that many calls of the key wait already, in the whole fleet. Choose it below the limit: the
	// calls of a process that has died wait until its lease ends, and get permits meanwhile. It costs etcd what
	// concurrency.MaxWaiters says, and needs Wait. Defaults to 0: any number of calls wait, while
	// concurrency.MaxWaiters(0) waits never.
	MaxWaiters int
	// Each returns options for one call, such as concurrency.Weight and concurrency.MaxHold. Wait has
	// no effect there. Defaults to none.
	Each func(ctx context.Context, fullMethod string) []concurrency.AcquireOption
	// Outage says what happens to calls in an outage of etcd, which begins after Patience. Before
	// that, and for calls that fail for another reason, the policy is Closed. A key, an option or a
	// context that is ErrInvalid without an outage is so in one. Defaults to Closed.
	Outage Outage
	// Patience is how long etcd has to be silent before that is an outage rather than latency. Below
	// about 6 seconds the loss of one member of etcd can count as one, before the client has switched
	// to another member. Defaults to 10 seconds; from 1 millisecond to 24 hours.
	Patience time.Duration
	// Enabled reports whether calls are limited at all. It is called for each call; give it the Load of
	// an atomic.Bool to switch the limit at run time. Calls that run keep their permits. Defaults to
	// always.
	Enabled func() bool
	// OnOutage is called when an outage has begun, with its error, and with nil when it has ended: by
	// a request or, if none has waited for etcd in vain for five seconds, in the background, where a panic
	// is logged. One call returns before the next. Defaults to nothing.
	OnOutage func(error)
	// ReportError is called with each error that an operator should know: etcd is unavailable, a
	// call ran without a permit under Open or Share, a permit was lost while its call ran, or an
	// option is wrong. A full limit or an exceeded rate is no such error. In the background a panic is
	// logged. Defaults to nothing.
	ReportError func(ctx context.Context, fullMethod string, err error)
}

// config is Options with their defaults.
type config struct {
	Options
	shared *middleware.Admission
	sends  bool // it is a client's
}

// configure returns the config of an interceptor. Its error is concurrency.ErrInvalid.
func configure(interceptor string, lim concurrency.Limiter, o Options) (*config, error) {
	attempted := "limitgrpc: new " + interceptor
	if o.ReportError == nil {
		o.ReportError = func(context.Context, string, error) {}
	}
	if o.Methods == nil {
		o.Methods = func(method string) bool { return !supervise.Method(method) }
	}
	shared, err := middleware.New(attempted, middleware.Settings{
		Limiter: lim, Rate: o.Rate, Keyed: o.Key != nil, Each: o.Each != nil, Wait: o.Wait, MaxWaiters: o.MaxWaiters,
		Outage: middleware.Outage(o.Outage), Patience: o.Patience, Enabled: o.Enabled, OnOutage: o.OnOutage,
	})
	if err != nil {
		return nil, err
	}
	return &config{Options: o, shared: shared}, nil
}

// limited returns the key of a call, unless the call is not limited.
func (c *config) limited(ctx context.Context, method string) (key string, limited bool) {
	if c.shared.Disabled() || !c.Methods(method) {
		return "", false
	}
	if c.Key == nil { // the rate limits all calls
		return "", true
	}
	return c.Key(ctx, method)
}

// run calls fn under a permit of the key. It returns the error of a call without a permit, and fn's
// otherwise; if the permit was lost, an error of fn that follows from the end of its context is
// replaced.
func (c *config) run(ctx context.Context, key, method string, fn func(context.Context) error) (failed error) {
	report := func(err error) { c.ReportError(ctx, method, err) }
	ran, err := c.shared.Run(ctx, key, c.each(ctx, method), report, func(own context.Context) {
		failed = fn(own)
	})
	switch {
	case err == nil:
		return failed
	case ran && !interrupted(failed):
		report(err)
		return failed
	}
	return c.refuse(ctx, key, method, ran, err)
}

// each returns the options for one call.
func (c *config) each(ctx context.Context, method string) []concurrency.AcquireOption {
	if c.Each == nil {
		return nil
	}
	return c.Each(ctx, method)
}
