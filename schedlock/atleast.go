package schedlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// slack is how much longer than AtLeast the lease of a cooldown lasts: it begins before the claim.
const slack = 2 * time.Second

// cooldown has the leases for the cooldowns of a job. It is safe for concurrent use.
type cooldown struct {
	*etcd

	mu     sync.Mutex
	spares []clientv3.LeaseID // unused
}

// spare returns a lease for a cooldown, renewed just now. It reuses the lease of an earlier call
// whose claim had no effect, since a renewal is no Raft entry. The caller owns the lease.
func (d *cooldown) spare(ctx context.Context, atLeast time.Duration) (clientv3.LeaseID, error) {
	g := engine.NewGrant(d.sess)
	id, err := repeat(ctx, d.etcd, func(call context.Context) (clientv3.LeaseID, error) {
		if id := d.take(); id != 0 {
			_, err := d.client.KeepAliveOnce(call, id)
			if err == nil {
				return id, nil
			}
			if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				d.keep(id)
				return 0, err
			}
		}
		_, err := g.Ask(call, atLeast+slack)
		return g.ID, err
	})
	if err != nil || id != g.ID {
		g.Leave()
	}
	return id, err
}

// lasts reports, after a claim, whether the lease of its cooldown can last for all of
// AtLeast: it begins before the claim, whose answer may be late.
func (d *cooldown) lasts(ctx context.Context, c *claimed) bool {
	if c.spare == 0 || time.Since(c.sent) <= slack/2 {
		return true
	}
	call, cancel := commit.Call(ctx)
	defer cancel()
	_, err := d.client.KeepAliveOnce(call, c.spare)
	return !errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// take returns an unused lease, or 0.
func (d *cooldown) take() (id clientv3.LeaseID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.spares); n > 0 {
		id, d.spares = d.spares[n-1], d.spares[:n-1]
	}
	return id
}

// unused reports whether there are unused leases.
func (d *cooldown) unused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.spares) > 0
}

// revokeSpares revokes the unused leases of a job, side by side. It takes a second at most.
func (d *cooldown) revokeSpares(ctx context.Context) {
	var wg sync.WaitGroup
	for id := d.take(); id != 0; id = d.take() {
		wg.Go(func() { d.revoke(ctx, id) })
	}
	wg.Wait()
}

// mostSpares is the number of unused leases of a job: as many as claims in flight.
const mostSpares = mostTurns

// keep keeps a lease for the next call, or does nothing if id is 0. It revokes the lease if
// the job has enough of them, or the session has ended.
func (d *cooldown) keep(id clientv3.LeaseID) {
	if id == 0 {
		return
	}
	d.mu.Lock()
	surplus := len(d.spares) >= mostSpares || d.sess.Context().Err() != nil
	if !surplus {
		d.spares = append(d.spares, id)
	}
	d.mu.Unlock()
	if surplus && !d.sess.Later(func(ctx context.Context) { d.revoke(ctx, id) }) {
		d.revoke(d.client.Ctx(), id)
	}
}

// end ends a cooldown exactly when AtLeast has passed. If the session ends before that, the
// cooldown ends a little later, with its lease.
func (d *cooldown) end(c *claimed, began time.Time, atLeast time.Duration) {
	select {
	case <-time.After(atLeast - time.Since(began)):
	case <-d.sess.Context().Done():
		return
	}
	_, _ = repeat(d.sess.Context(), d.etcd, func(call context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return d.client.Revoke(call, c.spare)
	})
}

// endOrphaned ends a cooldown whose process has ended, and which has lasted for AtLeast by each known clock, with MaxSkew for that of
// the process, which is not known any more. AtLeast is that of the run, as its lease shows: it may be another one than the caller's.
func endOrphaned(ctx context.Context, l *Locker, st state) (ended bool, err error) {
	now, known := l.clocks.slowest(l.sess.Lease())
	lease, began := st.orphaned(l.clocks.leases())
	if !known || lease == 0 {
		return false, nil
	}
	of, err := repeat(ctx, l.etcd, func(call context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return l.client.TimeToLive(call, lease)
	})
	if err != nil {
		return false, err
	}
	atLeast := time.Duration(of.GrantedTTL)*time.Second - slack
	if of.TTL > 0 && now.Before(began.Add(atLeast+l.opts.MaxSkew)) {
		return false, nil
	}
	_, err = repeat(ctx, l.etcd, func(call context.Context) (*clientv3.LeaseRevokeResponse, error) { return l.client.Revoke(call, lease) })
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil
	}
	return err == nil, err
}
