package idempotency

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

const (
	// aMoment is what is guessed of an attempt whose process is alive as far as is known: how
	// long its function takes is unknown.
	aMoment = time.Second
	// longestTTL is the greatest that a session may have. A stored record may name any lease.
	longestTTL = 300 * time.Second
)

// retryAfter estimates when it is worth asking again for a request whose attempt goes on, by the
// lease of the attempt's session; 0 is a lease that is not known, or one of this process.
//
// A session renews its lease within a third of the TTL. If a renewal is missing, the process may
// be gone; then no attempt can begin before the lease has ended, and that is the estimate. It
// asks etcd, for a moment at most, so it is for calls that are about to be refused.
func (s *Store) retryAfter(ctx context.Context, lease int64) time.Duration {
	if lease == 0 {
		return aMoment
	}
	ctx, cancel := context.WithTimeout(ctx, aMoment)
	defer cancel()
	call, done := commit.Call(ctx)
	defer done()
	resp, err := s.client.TimeToLive(call, clientv3.LeaseID(lease))
	if err != nil || resp.TTL <= 0 {
		return aMoment
	}
	// etcd rounds down to seconds.
	left, granted := time.Duration(resp.TTL+1)*time.Second, time.Duration(resp.GrantedTTL)*time.Second
	if granted-left < granted/3 {
		return aMoment
	}
	return min(left, longestTTL)
}
