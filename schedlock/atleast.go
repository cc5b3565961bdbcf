package schedlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// slack is by how much a hold's lease outlasts AtLeast: it counts from before the
// claim.
const slack = 2 * time.Second

// spare returns a lease for a hold that was renewed just now. One that an earlier call did
// not need, because it lost, is used again: renewals are no Raft entries. It is the
// caller's from then on.
func (l *Locker) spare(ctx context.Context, j *job, atLeast time.Duration) (clientv3.LeaseID, error) {
	var pause commit.Backoff
	for {
		j.mu.Lock()
		id := j.spare
		j.spare = 0
		j.mu.Unlock()
		call, cancel := commit.Call(ctx)
		var err error
		if id != 0 {
			_, err = l.client.KeepAliveOnce(call, id)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				id, err = 0, nil
			}
		}
		if id == 0 && err == nil {
			var granted *clientv3.LeaseGrantResponse
			ttl := int64((atLeast + slack + time.Second - 1) / time.Second)
			if granted, err = l.client.Grant(call, ttl); err == nil {
				id = granted.ID
			}
		}
		cancel()
		if err == nil {
			return id, nil
		}
		if !commit.Transient(err) {
			return 0, err
		}
		if err := pause.Wait(ctx, err); err != nil {
			return 0, err
		}
	}
}

// keep holds a lease ready for the next call.
func (j *job) keep(id clientv3.LeaseID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spare = id
}

// release ends a hold when AtLeast has passed, to the moment. If the session ends before
// that, the hold is left to its lease, which ends a little later.
func (l *Locker) release(c *claimed, began time.Time, atLeast time.Duration) {
	if began.Sub(c.sent) > slack/2 {
		call, cancel := commit.Call(l.sess.Context())
		_, _ = l.client.KeepAliveOnce(call, c.spare)
		cancel()
	}
	t := time.NewTimer(atLeast - time.Since(began))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.sess.Context().Done():
		return
	}
	var pause commit.Backoff
	for {
		call, cancel := commit.Call(l.sess.Context())
		_, err := l.client.Revoke(call, c.spare)
		cancel()
		if err == nil || !commit.Transient(err) || pause.Wait(l.sess.Context(), err) != nil {
			return
		}
	}
}
