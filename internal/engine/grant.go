package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Grant is the grant of a lease that is not the session's own. Its ID is chosen here: a copy of a request grants no second
// lease, and one that was granted although etcd's answer is missing can be revoked. One goroutine at a time uses it.
type Grant struct {
	ID clientv3.LeaseID

	sess   *Session
	unsure bool // a request has failed, and may have been applied
}

// GrantLease grants a lease that nothing keeps alive. It repeats the request until etcd answers or ctx ends.
func GrantLease(ctx context.Context, s *Session, ttl time.Duration) (id clientv3.LeaseID, granted time.Duration, err error) {
	g := NewGrant(s)
	granted, err = commit.Read(ctx, func(call context.Context) (time.Duration, error) { return g.Ask(call, ttl) })
	if err != nil {
		g.Leave()
	}
	return g.ID, granted, err
}

// NewGrant returns a grant that is not requested yet.
func NewGrant(s *Session) *Grant { return &Grant{ID: newLeaseID(), sess: s} }

func newLeaseID() clientv3.LeaseID { return clientv3.LeaseID(rand.Int64N(1<<62) + 1) }

// Ask requests the lease once, and returns the TTL that etcd gives it, which counts from this call at least: a lease that was
// granted by an earlier one is renewed. It may be called again after an error.
func (g *Grant) Ask(ctx context.Context, ttl time.Duration) (granted time.Duration, err error) {
	given, err := g.sess.lease.Grant(ctx, int64(g.ID), int64((ttl+time.Second-1)/time.Second))
	switch exists := errors.Is(err, rpctypes.ErrLeaseExist); {
	case exists && g.unsure:
		given, err = RenewOnce(ctx, g.sess, g.ID)
	case exists: // the ID is another lease's
		g.ID = newLeaseID()
		return g.Ask(ctx, ttl)
	}
	switch {
	case err != nil:
		g.unsure = g.unsure || !commit.Denied(err)
		return 0, err
	case given < 1: // it has expired since the first request
		g.ID, g.unsure = newLeaseID(), false
		return g.Ask(ctx, ttl)
	}
	return time.Duration(given) * time.Second, nil
}

// Leave revokes, in the background, a lease that the caller does not get but that may have been granted.
func (g *Grant) Leave() {
	if !g.unsure {
		return
	}
	s, id := g.sess, int64(g.ID)
	revoke := func() {
		var pause commit.Backoff
		for commit.Transient(s.lease.Revoke(s.late, id)) && pause.Wait(s.late, nil) == nil {
		}
	}
	if s.Background(revoke) {
		return
	}
	ctx, cancel := context.WithTimeout(s.etcd.Client.Ctx(), time.Second)
	defer cancel()
	_ = s.lease.Revoke(ctx, id)
}
