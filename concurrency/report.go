package concurrency

import (
	"context"
	"maps"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/observe"
)

// maxBlocking bounds the holders in one report.
const maxBlocking = 10

// reports reports why a request waits: once when the mirror shows its place,
// and then every SessionOptions.ReportEvery. stop ends that.
func (q *sessionQueue) reports(ctx context.Context, m *mirror.Mirror, c *ticket, begun time.Time) (stop func()) {
	if !q.sess.Hooks().Listens() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	report := func() {
		defer close(done)
		for again := false; ; {
			b, changed := m.Brief(c.Key, c.Token, maxBlocking)
			if b.Revision < c.Token { // the mirror has not seen the request yet
				select {
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			}
			if ctx.Err() != nil || !b.Waits {
				return
			}
			info := observe.Waiting{Waited: time.Since(begun), Limit: int(b.Limit), Ahead: b.Ahead}
			for _, r := range b.Holders {
				blocker := holder(describe(r))
				if again { // most waits are over before
					lease := q.leaseWithin(ctx, clientv3.LeaseID(blocker.Lease))
					blocker.Renewed, blocker.ExpiresBy = lease.renewed, lease.freesBy
				}
				info.Blocking = append(info.Blocking, blocker)
			}
			q.waits(ctx, c, info)
			again = true
			select {
			case <-time.After(q.own.reportEvery):
			case <-ctx.Done():
				return
			}
		}
	}
	if !q.sess.Background(report) {
		close(done)
	}
	return func() { cancel(); <-done }
}

// holder returns a request as hooks see it.
func holder(r Request) observe.Holder {
	return observe.Holder{Token: r.Token, ID: r.ID, Owner: r.Owner, Note: r.Note, Weight: r.Weight, Lease: int64(r.Lease), Requested: r.Requested, MaxHold: r.MaxHold}
}

// leaseSeen is what etcd said about a lease, and when it was asked.
type leaseSeen struct{ renewed, freesBy, asked time.Time }

// askLease asks etcd about a lease.
func (q *sessionQueue) askLease(ctx context.Context, lease clientv3.LeaseID) (leaseSeen, error) {
	ctx, cancel := commit.Call(ctx)
	defer cancel()
	seen := leaseSeen{asked: time.Now()}
	resp, err := q.sess.Etcd().TimeToLive(ctx, lease)
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

// leaseWithin asks etcd about a lease, once for all waiters of the queue.
func (q *sessionQueue) leaseWithin(ctx context.Context, lease clientv3.LeaseID) leaseSeen {
	fresh := q.own.reportEvery / 2
	q.mu.Lock()
	known := q.leases[lease]
	q.mu.Unlock()
	if time.Since(known.asked) < fresh {
		return known
	}
	seen, err := q.askLease(ctx, lease)
	if err != nil {
		return leaseSeen{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.leases, func(_ clientv3.LeaseID, l leaseSeen) bool { return seen.asked.Sub(l.asked) > fresh })
	q.leases[lease] = seen
	return seen
}

// maxLeases bounds the leases that one Status asks about.
const maxLeases = 64

// checkLeases completes holders by what etcd says of their leases, as long as it answers.
func (q *sessionQueue) checkLeases(ctx context.Context, holders []Request) {
	_ = q.do(ctx, func(ctx context.Context) (err error) {
		seen := map[clientv3.LeaseID]leaseSeen{}
		for i := range holders {
			lease, known := seen[holders[i].Lease]
			if !known {
				if len(seen) == maxLeases {
					continue
				}
				if lease, err = q.askLease(ctx, holders[i].Lease); err != nil {
					return err
				}
				seen[holders[i].Lease] = lease
			}
			holders[i].Renewed, holders[i].ExpiresBy = lease.renewed, lease.freesBy
		}
		return nil
	})
}
