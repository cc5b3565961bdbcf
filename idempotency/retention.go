package idempotency

import (
	"math"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
)

// newRetention returns the pool for records that are kept for d. A lease is assigned during a window,
// so it lives longer than d by that.
func newRetention(sess *engine.Session, d time.Duration) *pool {
	window := max(min(d/20, 10*time.Minute), time.Second)
	return &pool{sess: sess, ttl: d + window + writeReserve, window: window}
}

// retention has the pools for records that are kept, by the class of their time. It is safe for concurrent use.
type retention struct {
	sess  *engine.Session
	mu    sync.Mutex
	pools map[time.Duration]*pool
}

// of returns the pool for outcomes that are kept for d.
func (r *retention) of(d time.Duration) *pool {
	d = class(d)
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pools[d]
	if p == nil {
		p = newRetention(r.sess, d)
		r.pools[d] = p
	}
	return p
}

// class rounds a retention up by less than a twentieth, so that similar durations share leases.
func class(d time.Duration) time.Duration {
	s := math.Ceil(d.Seconds())
	if s <= 20 {
		return time.Duration(s) * time.Second
	}
	step := math.Pow(2, math.Floor(math.Log2(s/20)))
	return time.Duration(math.Ceil(s/step)*step) * time.Second
}
