package middleware

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
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
	on       atomic.Bool  // err is not nil
	last     atomic.Int64 // when etcd last answered a request, as the time since start

	mu  sync.Mutex
	err error     // of the request that found it, without the name of that request
	ask time.Time // when a request asks next
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
// has to be silent for patience.
func (o *outage) learn(err error, now time.Time) bool {
	silent, ok := errors.AsType[*concurrency.UnavailableError](err)
	switch {
	case ok && min(now.Sub(silent.Since), now.Sub(o.start.Add(time.Duration(o.last.Load())))) >= o.patience:
		o.set(silent, now)
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
		o.set(nil, time.Time{})
	}
}

func (o *outage) set(err error, now time.Time) {
	o.mu.Lock()
	began, ended := err != nil && o.err == nil, err == nil && o.err != nil
	if began {
		o.ask = now.Add(askEvery)
	}
	o.err = err
	o.on.Store(err != nil)
	o.mu.Unlock()
	if o.changed != nil && (began || ended) {
		o.changed(err)
	}
}
