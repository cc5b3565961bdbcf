package concurrency

// followKey ends a term whose key is gone, until it ends otherwise. For a permit that is held
// for a moment its Release reports that; a leader for months has to be stopped.
func (p *Permit) followKey() {
	m := p.queue.view.Join()
	defer m.Leave()
	for {
		gone, changed := m.Gone(p.ticket.Key, p.token)
		if gone {
			p.keyGone()
			return
		}
		select {
		case <-changed:
		case <-m.Replaced:
			m.Next()
		case <-p.Context().Done():
			return
		}
	}
}

// keyGone ends a permit whose key is gone from etcd. A notice of the process
// that did that arrives on another watch.
func (p *Permit) keyGone() {
	lost := p.ticket.ending(ErrLost, "its key was deleted")
	if n, _ := p.epoch.FindNotice(p.Context(), p.ticket.Ticket); n != nil {
		lost = p.ticket.noticeError(n)
	}
	if report := p.lose(lost); report != nil {
		p.epoch.Drop(p.ticket.Ticket)
		p.epoch.Free(p.ticket.Ticket)
		report()
	}
}
