package concurrency

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// maxBlocking bounds the holders in one report.
const maxBlocking = 10

// reporter is the part of a call that reports why its request waits, a queue.Caller.
type reporter struct {
	queue   *sessionQueue
	entry   *entry                   // of a call for a permit of a KeyedLimiter
	fetches func(before *queue.Full) // is called when it waits, if it is for whichever call is first in the local queue; or nil
}

func (c *reporter) Landed() { c.entry.landed() }

func (c *reporter) Waits(before *queue.Full) {
	if c.fetches != nil {
		c.fetches(before)
	}
}

// Follows reports once when the mirror shows the request's place, and then every SessionOptions.ReportEvery.
func (c *reporter) Follows(ctx context.Context, t *queue.Ticket, since time.Time, m *mirror.Mirror) (stop func()) {
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
					lease := q.leases.recent(ctx, q.sess, clientv3.LeaseID(blocker.Lease), q.reportEvery/2)
					blocker.Renewed, blocker.ExpiresBy = lease.renewed, lease.freesBy
				}
				info.Blocking = append(info.Blocking, blocker)
			}
			c.report(ctx, t, info)
			again = true
			select {
			case <-time.After(q.reportEvery):
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
func (c *reporter) Sleeps(ctx context.Context, t *queue.Ticket, since time.Time) {
	c.report(ctx, t, observe.Waiting{Waited: time.Since(since), Limit: int(limit.SeenN(c.queue.at(t.Level()).Limit)), Ahead: t.Ahead()})
}

// report reports why the request waits.
func (c *reporter) report(ctx context.Context, t *queue.Ticket, why observe.Waiting) {
	why.Call, why.Level = c.queue.call(observe.Acquire, t.Weight(), t.Token), string(t.Level())
	c.queue.sess.Hooks().Event(ctx, why)
}

// holder returns a request as hooks see it.
func holder(r Request) observe.Holder {
	return observe.Holder{Token: r.Token, ID: r.ID, Owner: r.Owner, Note: r.Note, Weight: r.Weight, Lease: int64(r.Lease), Requested: r.Requested, MaxHold: r.MaxHold}
}
