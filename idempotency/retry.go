package idempotency

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

const (
	// retrySoon is the estimate for an attempt whose session renews its lease: how long the
	// function takes is unknown. An answer about a lease is used for as long.
	retrySoon = time.Second
	// longestEstimate bounds the estimate: a session may have a TTL of a day, and a stored record may name any lease.
	longestEstimate = 300 * time.Second
)

// expiry is the estimate of when the lease of another session expires. Callers that are refused for
// the same session share one request per second.
type expiry struct {
	asked moment
	known chan struct{} // closed when after is set
	after time.Duration // from asked on
}

// expiries are the latest estimates of a Store, by lease. It is safe for concurrent use.
type expiries struct {
	sess *engine.Session
	mu   sync.Mutex
	of   map[int64]*expiry
}

// retryAfter estimates when it is worth asking again for a request in progress, by the lease of the
// attempt's session; 0 is a lease that is not known, or one of this process.
//
// A session renews its lease within a third of the TTL. If a renewal is missing, its process may be
// dead; then no attempt can begin before the lease expires, and that is the estimate. It waits for
// etcd, for a second at most, so it is for calls that are about to be refused.
func (x *expiries) retryAfter(ctx context.Context, lease int64) time.Duration {
	if lease == 0 {
		return retrySoon
	}
	e := x.expiry(lease)
	select {
	case <-e.known:
		return max(e.after-aged(e.asked), retrySoon)
	case <-ctx.Done():
		return retrySoon
	}
}

// expiry returns the estimate for a lease, and asks etcd if there is none of the last second.
func (x *expiries) expiry(lease int64) *expiry {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.of, func(_ int64, e *expiry) bool { return aged(e.asked) >= retrySoon })
	e := x.of[lease]
	if e == nil {
		e = &expiry{asked: now(), known: make(chan struct{})}
		x.of[lease] = e
		if !x.sess.Background(func() { e.after = x.untilExpiry(lease); close(e.known) }) {
			close(e.known)
		}
	}
	return e
}

// untilExpiry asks etcd how long a lease lives, if a renewal is missing; otherwise it returns 0.
func (x *expiries) untilExpiry(lease int64) time.Duration {
	ctx, cancel := context.WithTimeout(x.sess.Context(), retrySoon)
	defer cancel()
	call, done := commit.Call(ctx)
	defer done()
	resp, err := x.sess.Etcd().TimeToLive(call, clientv3.LeaseID(lease))
	if err != nil || resp.TTL <= 0 {
		return 0
	}
	// etcd rounds down to seconds.
	left, granted := time.Duration(resp.TTL+1)*time.Second, time.Duration(resp.GrantedTTL)*time.Second
	if granted-left < granted/3 {
		return 0
	}
	return min(left, longestEstimate)
}
