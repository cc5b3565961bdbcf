package middleware

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/share"
)

// askEvery is how often a request asks, in an outage, whether etcd answers again, and how long such
// a request waits at most. The others are answered at once, by the policy.
const askEvery = time.Second

// outage is what an Admission knows of etcd's availability. It begins with a request that was not
// answered because etcd has been silent for patience, and ends with the first answer.
type outage struct {
	start    time.Time // of the time that is measured here; it lies before any answer
	patience time.Duration
	changed  func(error)
	policy   Outage
	on       atomic.Bool  // err is not nil
	last     atomic.Int64 // when etcd last answered a request, as the time since start

	mu    sync.Mutex
	err   error     // of the request that found it, without the name of that request
	ask   time.Time // when a request asks next
	began time.Time
	of    any // what that request has called: a *concurrency.Semaphore or *concurrency.RateLimiter
}

// known returns the error of an outage that has not ended, or nil if the request has to ask.
func (o *outage) known(now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && now.Before(o.ask) {
		return o.err
	}
	o.ask = now.Add(askEvery)
	return nil
}

// learn reports whether the error of a request without a permit is an outage. Latency is none: etcd
// has to be silent for patience. of is what the request has called.
func (o *outage) learn(err error, now time.Time, of any) bool {
	silent, ok := errors.AsType[*concurrency.UnavailableError](err)
	switch {
	case ok && min(now.Sub(silent.Since), now.Sub(o.start.Add(time.Duration(o.last.Load())))) >= o.patience:
		o.set(silent, now, of)
		return true
	case errors.Is(err, concurrency.ErrFull), errors.Is(err, concurrency.ErrHeld), errors.Is(err, concurrency.ErrLimitMismatch):
		o.answered()
	}
	return false
}

// answered ends an outage: etcd has answered. A request that has waited in vain until then does not
// begin it anew.
func (o *outage) answered() {
	o.last.Store(int64(time.Since(o.start)))
	if o.on.Load() {
		o.set(nil, time.Now(), nil)
	}
}

func (o *outage) set(err error, now time.Time, of any) {
	o.mu.Lock()
	began, ended := err != nil && o.err == nil, err == nil && o.err != nil
	if began {
		o.ask, o.began, o.of = now.Add(askEvery), now, of
	}
	o.err = err
	o.on.Store(err != nil)
	of, lasted := o.of, now.Sub(o.began)
	o.mu.Unlock()
	if !began && !ended {
		return
	}
	share.Report(of, policies[o.policy], err, lasted)
	if o.changed != nil {
		o.changed(err)
	}
}

// policies are the outage policies as hooks see them.
var policies = [...]string{Closed: "closed", Open: "open", Share: "share"}
