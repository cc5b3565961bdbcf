package concurrency

import (
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// followKey ends a term whose key is gone, until it ends otherwise. For a permit that is held
// for a moment its Release reports that; a leader for months has to be stopped. Where few requests
// wait, it follows the queue, as they do; where many do, only its own key: a leader pays nothing for them.
func (p *Permit) followKey() {
	if !p.followQueue() {
		return
	}
	mirror.AwaitGone(p.Context(), p.queue.sess.Source(), p.ticket.Key, p.token)
	if p.Context().Err() == nil {
		p.keyGone()
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

// KeyGone asks etcd for the reason.
func (h *held) KeyGone() { h.permit().keyGone() }
