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

// slack is by how much a hold's lease outlasts AtLeast: it counts from before the
// claim.
const slack = 2 * time.Second

// spare returns a lease for a hold that was renewed just now. One that an earlier call did
// not need, because it lost, is used again: renewals are no Raft entries. It is the
// caller's from then on.
func (l *Locker) spare(ctx context.Context, j *job, atLeast time.Duration) (clientv3.LeaseID, error) {
	var pause commit.Backoff
	for {
		id := j.takeSpare()
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
		l.keep(j, id)
		if !commit.Transient(err) {
			return 0, err
		}
		if err := pause.Wait(ctx, err); err != nil {
			return 0, err
		}
	}
}

// holds tells, after a claim, whether its hold can stand for all of AtLeast: its lease counts
// from before the claim, whose answer may have come late.
func (l *Locker) holds(ctx context.Context, c *claimed) bool {
	if c.spare == 0 || time.Since(c.sent) <= slack/2 {
		return true
	}
	call, cancel := commit.Call(ctx)
	defer cancel()
	_, err := l.client.KeepAliveOnce(call, c.spare)
	return !errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// takeSpare returns a lease that is held ready, or 0.
func (j *job) takeSpare() (id clientv3.LeaseID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.spares); n > 0 {
		id, j.spares = j.spares[n-1], j.spares[:n-1]
	}
	return id
}

// giveBack ends the leases that a job holds ready. It takes a second for each at most.
func (l *Locker) giveBack(j *job) {
	for id := j.takeSpare(); id != 0; id = j.takeSpare() {
		l.end(id)
	}
}

// giveAllBack is giveBack for a session that has been closed.
func (l *Locker) giveAllBack() {
	l.mu.Lock()
	jobs := slices.Collect(maps.Values(l.jobs))
	l.mu.Unlock()
	for _, j := range jobs {
		l.giveBack(j)
	}
}

// end ends a lease that nobody needs, 0 for none, and what hangs on it. It takes a second
// at most; a lease that it does not reach expires.
func (l *Locker) end(id clientv3.LeaseID) {
	if id == 0 || l.client.Ctx().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.client.Ctx(), time.Second)
	defer cancel()
	_, _ = l.client.Revoke(ctx, id)
}

// mostSpares is how many leases a job holds ready: as many as claims are on their way at
// once.
const mostSpares = turns

// keep holds a lease, 0 for none, ready for the next call. One that is too many, or that
// comes when the session has ended, ends.
func (l *Locker) keep(j *job, id clientv3.LeaseID) {
	if id == 0 {
		return
	}
	j.mu.Lock()
	surplus := len(j.spares) >= mostSpares || l.sess.Context().Err() != nil
	if !surplus {
		j.spares = append(j.spares, id)
	}
	j.mu.Unlock()
	if surplus && !l.sess.Background(func() { l.end(id) }) {
		l.end(id)
	}
}

// release ends a hold when AtLeast has passed, to the moment. If the session ends before
// that, the hold is left to its lease, which ends a little later.
func (l *Locker) release(c *claimed, began time.Time, atLeast time.Duration) {
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
