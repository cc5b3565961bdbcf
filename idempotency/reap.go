package idempotency

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// watchOver has a lease revoked when its time has passed. The caller holds mu.
//
// etcd restarts the time of all leases when its leader changes; with a change each day, records that
// are kept for a day would stay for ever. So the process that was granted a lease revokes it if etcd
// has not ended it. Only the time that passes in this process counts.
func (p *pool) watchOver(l *pooled) {
	p.granted = append(p.granted, l)
	if !p.reaping {
		p.reaping = p.sess.Later(p.reap)
	}
}

// slack is how much longer than its TTL a lease may live before it is revoked: etcd ends an expired
// lease within seconds.
func (p *pool) slack() time.Duration { return p.ttl/10 + 2*time.Second }

// reap revokes the leases whose time has passed, one after the other, and at the end of the session, within late, the unused ones.
func (p *pool) reap(late context.Context) {
	ctx, client := p.sess.Context(), p.sess.Etcd()
	for {
		p.mu.Lock()
		if len(p.granted) == 0 {
			p.reaping = false
			p.mu.Unlock()
			return
		}
		l := p.granted[0]
		p.mu.Unlock()
		// By the clock that has advanced least: setting a clock must not delete a record.
		passed := min(time.Since(l.sent.Time), time.Now().Round(0).Sub(l.sent.Round(0)))
		select {
		case <-time.After(p.ttl + p.slack() - passed):
		case <-ctx.Done():
			p.mu.Lock()
			all := slices.Clone(p.granted)
			p.mu.Unlock()
			p.revokeUnused(late, all...)
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
		if err != nil && (commit.Transient(err) || commit.Denied(err)) {
			pause := commit.Backoff{Least: time.Second, Most: p.slack()}
			if pause.Wait(ctx, nil) == nil {
				continue
			}
		}
		p.mu.Lock()
		p.granted = p.granted[1:]
		p.mu.Unlock()
	}
}

// revokeUnused revokes those of some leases that have no key, at the end of the session. A lease on which this process may
// have put something is left to expire, and so is one on which etcd shows a key, or does not say: others put records there
// as well, such as an operator's correction, or one that was there before a claim.
func (p *pool) revokeUnused(ctx context.Context, of ...*pooled) {
	p.mu.Lock()
	of = slices.DeleteFunc(of, func(l *pooled) bool { return l.used > 0 || l.gone })
	for _, l := range of {
		l.gone = true // for a caller that still takes one
	}
	p.mu.Unlock()
	client := p.sess.Etcd()
	call, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, l := range of {
		if on, err := client.TimeToLive(call, l.id, clientv3.WithAttachedKeys()); err == nil && len(on.Keys) == 0 {
			_, _ = client.Revoke(call, l.id)
		}
	}
}
