package concurrency

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/limit"
)

// followKey ends a term whose key is gone, until it ends otherwise. For a permit that is held
// for a moment its Release reports that; a leader for months has to be stopped. Where few requests
// wait, it follows the queue, as they do; where many do, only its own key: a leader pays nothing for them.
func (p *Permit) followKey() {
	if p.followQueue() {
		p.followOwnKey()
	}
}

// followQueue follows the queue until the term ends, or crowded is set.
func (p *Permit) followQueue() (crowded bool) {
	q := p.queue
	m := q.View.Join()
	defer m.Leave()
	for p.Context().Err() == nil { // a term that was released first is not looked for
		gone, changed := m.Gone(p.ticket.Key, p.token)
		if gone {
			p.keyGone()
			return false
		}
		if int64(m.Requests()) > q.Crowd.Horizon.Distance(limit.SeenN(q.Limit)) {
			return true
		}
		select {
		case <-changed:
		case <-m.Replaced:
			m.Next()
		case <-p.Context().Done():
		}
	}
	return false
}

// followOwnKey follows the key of the term.
func (p *Permit) followOwnKey() {
	ctx, gone := context.WithCancel(p.Context())
	defer gone()
	k := &ownKey{key: p.ticket.Key, token: p.token, gone: gone}
	p.queue.sess.Source().Follow(ctx, k.key, k.token, k)
	if p.Context().Err() == nil {
		p.keyGone()
	}
}

// ownKey is a mirror.Handler for the key of one request.
type ownKey struct {
	key   string
	token int64
	gone  func() // is called when it is gone
}

// Reset implements mirror.Handler.
func (k *ownKey) Reset(kvs []*mvccpb.KeyValue, _ int64) {
	for _, kv := range kvs {
		if string(kv.Key) == k.key && k.lives(kv) {
			return
		}
	}
	k.gone()
}

// Apply implements mirror.Handler.
func (k *ownKey) Apply(events []*clientv3.Event, _ int64) {
	for _, ev := range events {
		if string(ev.Kv.Key) == k.key && (ev.Type == clientv3.EventTypeDelete || !k.lives(ev.Kv)) {
			k.gone()
		}
	}
}

// lives reports whether the key is still the term's. Without a lease it has no owner.
func (k *ownKey) lives(kv *mvccpb.KeyValue) bool {
	return kv.CreateRevision == k.token && kv.Lease != 0
}

// keyGone ends a permit whose key is gone from etcd. A notice of the process that deleted it arrives on
// another watch, and so does the deletion of the session's presence key, if the lease has ended.
func (p *Permit) keyGone() {
	lost := p.queue.ending(p.ticket, ErrLost, "its key was deleted")
	switch n, err := p.epoch.FindNotice(p.Context(), p.ticket.Ticket); {
	case n != nil:
		lost = p.queue.endingBy(p.ticket, *n)
	case err == nil && p.epoch.Vanished(p.Context()):
		lost = p.lostWithSession()
	}
	if report := p.lose(lost); report != nil {
		p.epoch.Drop(p.ticket.Ticket)
		p.epoch.Free(p.ticket.Ticket)
		report()
	}
}
