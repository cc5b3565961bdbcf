package schedlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// slack is how much longer than AtLeast the lease of a cooldown lasts: it begins before the claim.
const slack = 2 * time.Second

// spare returns a lease for a cooldown, renewed just now. It reuses the lease of an earlier call
// whose claim had no effect, since a renewal is no Raft entry. The caller owns the lease.
func (l *Locker) spare(ctx context.Context, j *job, atLeast time.Duration) (clientv3.LeaseID, error) {
	ttl := int64((atLeast + slack + time.Second - 1) / time.Second)
	return repeat(ctx, l, func(call context.Context) (clientv3.LeaseID, error) {
		if id := j.takeSpare(); id != 0 {
			_, err := l.client.KeepAliveOnce(call, id)
			if err == nil {
				return id, nil
			}
			if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				l.keepSpare(j, id)
				return 0, err
			}
		}
		granted, err := l.client.Grant(call, ttl)
		if err != nil {
			return 0, err
		}
		return granted.ID, nil
	})
}

// cooldownLasts reports, after a claim, whether the lease of its cooldown can last for all of
// AtLeast: it begins before the claim, whose answer may be late.
func (l *Locker) cooldownLasts(ctx context.Context, c *claimed) bool {
	if c.spare == 0 || time.Since(c.sent) <= slack/2 {
		return true
	}
	call, cancel := commit.Call(ctx)
	defer cancel()
	_, err := l.client.KeepAliveOnce(call, c.spare)
	return !errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// takeSpare returns an unused lease, or 0.
func (j *job) takeSpare() (id clientv3.LeaseID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.spares); n > 0 {
		id, j.spares = j.spares[n-1], j.spares[:n-1]
	}
	return id
}

// revokeSpares revokes the unused leases of a job. It takes one second for each at most.
func (l *Locker) revokeSpares(j *job) {
	for id := j.takeSpare(); id != 0; id = j.takeSpare() {
		l.revoke(id)
	}
}

// revokeAllSpares is revokeSpares for all jobs, after the session has closed.
func (l *Locker) revokeAllSpares() {
	l.mu.Lock()
	jobs := slices.Collect(maps.Values(l.jobs))
	l.mu.Unlock()
	for _, j := range jobs {
		l.revokeSpares(j)
	}
}

// revoke revokes a lease, or does nothing if id is 0. It takes one second at most; a lease that it
// cannot revoke expires.
func (l *Locker) revoke(id clientv3.LeaseID) {
	if id == 0 || l.client.Ctx().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.client.Ctx(), time.Second)
	defer cancel()
	_, _ = l.client.Revoke(ctx, id)
}

// mostSpares is the number of unused leases of a job: as many as claims in flight.
const mostSpares = turns

// keepSpare keeps a lease for the next call, or does nothing if id is 0. It revokes the lease if
// the job has enough of them, or the session has ended.
func (l *Locker) keepSpare(j *job, id clientv3.LeaseID) {
	if id == 0 {
		return
	}
	j.mu.Lock()
	surplus := len(j.spares) >= mostSpares || l.sess.Context().Err() != nil
	if !surplus {
		j.spares = append(j.spares, id)
	}
	j.mu.Unlock()
	if surplus && !l.sess.Background(func() { l.revoke(id) }) {
		l.revoke(id)
	}
}

// endCooldown ends a cooldown exactly when AtLeast has passed. If the session ends before that, the
// cooldown ends a little later, with its lease.
func (l *Locker) endCooldown(c *claimed, began time.Time, atLeast time.Duration) {
	select {
	case <-time.After(atLeast - time.Since(began)):
	case <-l.sess.Context().Done():
		return
	}
	_, _ = repeat(l.sess.Context(), l, func(call context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return l.client.Revoke(call, c.spare)
	})
}
