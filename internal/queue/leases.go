package queue

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// LeaseState is what etcd said about a lease.
type LeaseState struct {
	Renewed   time.Time // when it was last renewed, or up to a second before that; zero if it does not exist
	ExpiresBy time.Time // when it has ended for certain, unless it is renewed
	asked     time.Time
}

// AskLease asks etcd about a lease.
func AskLease(ctx context.Context, sess *engine.Session, lease clientv3.LeaseID) (LeaseState, error) {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	seen := LeaseState{asked: time.Now()}
	resp, err := sess.Etcd().TimeToLive(ctx, lease)
	if err != nil {
		return LeaseState{}, err
	}
	left := time.Duration(max(resp.TTL, 0)) * time.Second
	seen.ExpiresBy = time.Now().Add(left + 1500*time.Millisecond)
	if granted := time.Duration(resp.GrantedTTL) * time.Second; granted > 0 { // it exists
		seen.Renewed = seen.asked.Add(left - granted)
	}
	return seen, nil
}

// Leases are what was found of leases, for all waiters of a queue.
type Leases struct {
	sess *engine.Session
	mu   sync.Mutex
	seen map[clientv3.LeaseID]LeaseState
}

// State returns what etcd has said about a lease, and asks unless that is fresh. Without an answer it is zero.
func (l *Leases) State(ctx context.Context, lease clientv3.LeaseID, fresh time.Duration) LeaseState {
	l.mu.Lock()
	known := l.seen[lease]
	l.mu.Unlock()
	if time.Since(known.asked) < fresh {
		return known
	}
	now, err := AskLease(ctx, l.sess, lease)
	if err != nil {
		return LeaseState{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.seen, func(_ clientv3.LeaseID, of LeaseState) bool { return now.asked.Sub(of.asked) > fresh })
	if l.seen == nil {
		l.seen = map[clientv3.LeaseID]LeaseState{}
	}
	l.seen[lease] = now
	return now
}
