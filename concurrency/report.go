package concurrency

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// maxBlocking bounds the holders in one report.
const maxBlocking = 10

// caller is an attempt as its queue knows it, a queue.Caller: it reports why the request waits.
type caller attempt

func (c *caller) Landed() { c.entry.landed() }

func (c *caller) Waits(before *queue.Full) {
	if c.fetches != nil {
		c.fetches(before)
	}
}

// Follows reports once when the mirror shows the request's place, and then every SessionOptions.ReportEvery.
func (c *caller) Follows(ctx context.Context, t *queue.Ticket, since time.Time, m *mirror.Mirror) (stop func()) {
	q := c.queue.at(t.Level())
	if !q.sess.Hooks().Listens() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	report := func() {
		defer close(done)
		for again := false; ; {
			b, changed := m.Brief(t.Key, t.Token, maxBlocking)
			if b.Revision < t.Token { // the mirror has not seen the request yet
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
			info := observe.Waiting{Waited: time.Since(since), Limit: int(b.Limit), Ahead: b.Ahead}
			for _, r := range b.Holders {
				blocker := holder(describe(r))
				if again { // most waits are over before
					lease := q.leases.within(ctx, q.sess, clientv3.LeaseID(blocker.Lease), q.own.reportEvery/2)
					blocker.Renewed, blocker.ExpiresBy = lease.renewed, lease.freesBy
				}
				info.Blocking = append(info.Blocking, blocker)
			}
			c.report(ctx, t, info)
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

// Sleeps reports that the request waits, and how many others were before it.
func (c *caller) Sleeps(ctx context.Context, t *queue.Ticket, since time.Time) {
	c.report(ctx, t, observe.Waiting{Waited: time.Since(since), Limit: int(limit.SeenN(c.queue.at(t.Level()).Limit)), Ahead: t.Ahead()})
}

// report reports why the request waits.
func (c *caller) report(ctx context.Context, t *queue.Ticket, why observe.Waiting) {
	why.Call, why.Level = c.queue.call(observe.Acquire, t.Weight(), t.Token), string(t.Level())
	c.queue.sess.Hooks().Event(ctx, why)
}

// holder returns a request as hooks see it.
func holder(r Request) observe.Holder {
	return observe.Holder{Token: r.Token, ID: r.ID, Owner: r.Owner, Note: r.Note, Weight: r.Weight, Lease: int64(r.Lease), Requested: r.Requested, MaxHold: r.MaxHold}
}

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

// within returns what etcd has said about a lease, and asks unless that is fresh.
func (l *leases) within(ctx context.Context, sess *engine.Session, lease clientv3.LeaseID, fresh time.Duration) leaseSeen {
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

// maxLeases bounds the leases that one Status asks about.
const maxLeases = 64

// checkLeases completes holders by what etcd says of their leases, as long as it answers.
func checkLeases(ctx context.Context, sess *engine.Session, holders []Request) {
	_ = sess.Do(ctx, func(ctx context.Context) (err error) {
		seen := map[clientv3.LeaseID]leaseSeen{}
		for i := range holders {
			lease, known := seen[holders[i].Lease]
			if !known {
				if len(seen) == maxLeases {
					continue
				}
				if lease, err = askLease(ctx, sess, holders[i].Lease); err != nil {
					return err
				}
				seen[holders[i].Lease] = lease
			}
			holders[i].Renewed, holders[i].ExpiresBy = lease.renewed, lease.freesBy
		}
		return nil
	})
}
