package concurrency

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// leaseSeen is what etcd said about a lease, and when it was asked.
type leaseSeen struct{ renewed, freesBy, asked time.Time }

// askLease asks etcd about a lease.
func askLease(ctx context.Context, sess *engine.Session, lease clientv3.LeaseID) (leaseSeen, error) {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	seen := leaseSeen{asked: time.Now()}
	resp, err := sess.Etcd().TimeToLive(ctx, lease)
	if err != nil {
		return leaseSeen{}, err
	}
	left := time.Duration(max(resp.TTL, 0)) * time.Second
	seen.freesBy = time.Now().Add(left + 1500*time.Millisecond)
	if granted := time.Duration(resp.GrantedTTL) * time.Second; granted > 0 { // it exists
		seen.renewed = seen.asked.Add(left - granted)
	}
	return seen, nil
}

// leases are what was found of leases, for all waiters of a queue.
type leases struct {
	mu   sync.Mutex
	seen map[clientv3.LeaseID]leaseSeen
}

// recent returns what etcd has said about a lease, and asks unless that is fresh.
func (l *leases) recent(ctx context.Context, sess *engine.Session, lease clientv3.LeaseID, fresh time.Duration) leaseSeen {
	l.mu.Lock()
	known := l.seen[lease]
	l.mu.Unlock()
	if time.Since(known.asked) < fresh {
		return known
	}
	now, err := askLease(ctx, sess, lease)
	if err != nil {
		return leaseSeen{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.seen, func(_ clientv3.LeaseID, of leaseSeen) bool { return now.asked.Sub(of.asked) > fresh })
	if l.seen == nil {
		l.seen = map[clientv3.LeaseID]leaseSeen{}
	}
	l.seen[lease] = now
	return now
}
