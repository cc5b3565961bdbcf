package idempotency

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// watchOver sees to it that a lease ends. The pool is locked.
//
// etcd starts all leases anew when its leader changes; with a change each day, records of a
// day would stay for ever. So who has granted a lease ends it when its time is up, if etcd
// has not. No clocks are compared: it is the time that has passed here.
func (p *pool) watchOver(l *pooled) {
	p.granted = append(p.granted, l)
	if !p.reaping {
		p.reaping = p.sess.Background(p.reap)
	}
}

// slack is by how much a lease may live longer than its TTL before it is ended by hand: an
// expired one is ended by etcd within seconds.
func (p *pool) slack() time.Duration { return p.ttl/10 + 2*time.Second }

// reap ends the leases whose time is up, one after the other.
func (p *pool) reap() {
	ctx, client := p.sess.Context(), p.sess.Client()
	for {
		p.mu.Lock()
		if len(p.granted) == 0 {
			p.reaping = false
			p.mu.Unlock()
			return
		}
		l := p.granted[0]
		p.mu.Unlock()
		// By the clock that says less: one that was set must not cost a record.
		passed := min(time.Since(l.sent.Time), time.Now().Round(0).Sub(l.sent.Round(0)))
		t := time.NewTimer(p.ttl + p.slack() - passed)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if passed < p.ttl+p.slack() {
			continue
		}
		call, cancel := commit.Call(ctx)
		left, err := client.TimeToLive(call, l.id)
		if err == nil && left.TTL > 0 {
			_, err = client.Revoke(call, l.id)
		}
		cancel()
		if err != nil && commit.Transient(err) {
			var pause commit.Backoff
			pause.Most = p.slack()
			if pause.Wait(ctx, nil) == nil {
				continue
			}
		}
		p.mu.Lock()
		p.granted = p.granted[1:]
		p.mu.Unlock()
	}
}
