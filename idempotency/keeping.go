package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// keeping is until when a lease of attempts in progress may be trusted. When it ends, another attempt may begin, since the
// records are gone. It is safe for concurrent use.
type keeping struct {
	ctx     context.Context // ends, with the cause, when the lease is gone, or was not renewed in time
	end     context.CancelCauseFunc
	granted time.Duration
	span    time.Duration // how long it may be trusted after a renewal was sent
	since   atomic.Pointer[moment]
}

// The causes of its end.
var (
	errRecordGone error = recordGone{}
	errRecordLate       = errors.New("the lease of its record was not renewed in time")
)

// recordGone is the ErrFenced of a write of an attempt's record whose lease etcd does not have.
type recordGone struct{}

func (recordGone) Error() string { return "the lease of its record does not exist any more" }
func (recordGone) Unwrap() error { return ErrFenced }

func newKeeping(sent moment, granted, margin time.Duration) *keeping {
	k := &keeping{granted: granted, span: granted - margin}
	k.ctx, k.end = context.WithCancelCause(context.Background())
	k.since.Store(&sent)
	return k
}

// marginOf returns how long before its end a lease of a TTL is trusted no more. The clocks of this process and of etcd's
// leader may run apart as much as the session's own margin allows over its TTL, but by no more than a fifth.
func marginOf(granted, ttl, margin time.Duration) time.Duration {
	return max(margin, min(granted/5, time.Duration(float64(granted)*margin.Seconds()/ttl.Seconds())))
}

// fresh reports whether a record may be put on the lease: less than two thirds of it have passed since its last renewal. A
// lost attempt is remembered for what is left. nil is a lease for which that is not asked.
func (k *keeping) fresh(at moment) bool { return k == nil || k.since.Load().Age(at) < k.granted/3*2 }

// trusted reports whether the lease may be trusted now, by the clocks.
func (k *keeping) trusted() bool { return k.trustedAt(now()) }

// trustedAt reports whether the lease may be trusted at a time. nil is a lease for which that is not asked.
func (k *keeping) trustedAt(at moment) bool {
	switch {
	case k == nil:
		return true
	case k.ctx.Err() != nil:
		return false
	case k.since.Load().Age(at) < k.span:
		return true
	}
	k.end(errRecordLate)
	return false
}

// until returns until when it may be trusted unless it is renewed.
func (k *keeping) until() time.Time { return k.since.Load().Add(k.span) }

// renewed extends the time by an acknowledged renewal that was sent at that time, unless it has ended.
func (k *keeping) renewed(sent moment) {
	if k.trusted() {
		k.since.Store(&sent)
	}
}

// ground is what attempts depend on: the leases of their session and of their records. It is safe for concurrent use.
type ground struct {
	*engine.Epoch
	record *keeping

	mu    sync.Mutex
	over  bool
	first *Attempt // of those in progress
}

// place is the place of an attempt among those on its ground. The mutex of the ground protects it.
type place struct {
	listed     bool
	next, prev *Attempt
}

// add has ungrounded called of an attempt when its ground ends, or at once if it has ended.
func (g *ground) add(a *Attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		go a.ungrounded()
		return
	}
	a.on = place{listed: true, next: g.first}
	if g.first != nil {
		g.first.on.prev = a
	}
	g.first = a
}

// remove is for an attempt that has been settled.
func (g *ground) remove(a *Attempt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := a.on
	if !at.listed {
		return
	}
	if at.prev == nil {
		g.first = at.next
	} else {
		at.prev.on.next = at.next
	}
	if at.next != nil {
		at.next.on.prev = at.prev
	}
	a.on = place{}
}

// end ends the attempts. Each has a goroutine of its own, since hooks may take their time.
func (g *ground) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	for a := g.first; a != nil; {
		next := a.on.next
		a.on = place{}
		go a.ungrounded()
		a = next
	}
	g.first = nil
}

// Valid reports whether both may be trusted now.
func (g *ground) Valid() bool {
	at := now()
	return g.Epoch.ValidAt(at) && g.record.trustedAt(at)
}

// Deadline returns until when both may be trusted unless they are renewed.
func (g *ground) Deadline() time.Time {
	of, record := g.Epoch.Deadline(), g.record.until()
	if record.Before(of) {
		return record
	}
	return of
}

// Outlived reports whether it has ended while the session lives: the lease of the record has.
func (g *ground) Outlived() bool { return g.record.ctx.Err() != nil && g.Epoch.Context().Err() == nil }

// Why returns why it has ended.
func (g *ground) Why() (cause, reason error) {
	if cause, reason = g.Epoch.Why(); cause == nil && g.record.ctx.Err() != nil {
		return ErrLost, context.Cause(g.record.ctx)
	}
	return cause, reason
}

// under returns what an attempt depends on whose record is on that lease of the pool. Attempts share it.
func (p *pool) under(ep *engine.Epoch, l *pooled) *ground {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.ground == nil || l.ground.Epoch != ep {
		g := &ground{Epoch: ep, record: l.kept}
		of := either.Of(ep.Context(), l.kept.ctx, nil)
		context.AfterFunc(of, func() { g.end(); of.Release() })
		l.ground = g
	}
	return l.ground
}

// renew keeps a lease of a work pool alive as long as the session is open, and then revokes it if no
// key is on it. A lease that is full of lost attempts is left to expire. While attempts are in progress, etcd is asked once
// per TTL of the session whether the lease exists: no event says that it was revoked by hand.
func (p *pool) renew(late context.Context, l *pooled) {
	ctx := p.sess.Context()
	overdue := time.AfterFunc(l.kept.span, func() { l.kept.trusted() })
	defer overdue.Stop()
	var pause commit.Backoff
	usual := min(p.ttl/3, p.sess.TTL())
	wait, renewed := usual, l.sent
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			p.revokeUnused(late, l)
			return
		}
		p.mu.Lock()
		idle := l.live == 0
		l.gone = l.gone || idle && l.used >= perLease
		gone := l.gone
		p.mu.Unlock()
		sent, err := now(), error(nil)
		switch {
		case gone && idle:
			l.kept.end(errRecordGone) // no attempt is on it: this frees what watches it
			return
		case aged(renewed) >= p.ttl/3:
			if err = p.renewOnce(ctx, l); err == nil {
				renewed = sent
				l.kept.renewed(sent)
				overdue.Reset(l.kept.span - aged(sent))
			}
		case !idle:
			err = p.exists(ctx, l)
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			l.kept.end(errRecordGone)
		}
		switch {
		case !l.kept.trusted():
			p.lose(l)
			return
		case err == nil:
			pause.Reset()
			wait = max(0, min(usual, p.ttl/3-aged(renewed))) // what a lost attempt is kept for counts from the last renewal
		default:
			wait = 0
			_ = pause.Wait(ctx, nil) // if ctx has ended, the next turn sees that
		}
	}
}

// renewOnce renews a lease. etcd may acknowledge less than was granted, which extends nothing.
func (p *pool) renewOnce(ctx context.Context, l *pooled) error {
	call, cancel := commit.Call(ctx)
	defer cancel()
	seconds, err := engine.RenewOnce(call, p.sess, l.id)
	switch {
	case err != nil:
		return err
	case seconds <= 0:
		return rpctypes.ErrLeaseNotFound
	case time.Duration(seconds)*time.Second < l.kept.granted:
		return fmt.Errorf("the renewal gave %d s, less than was granted", seconds)
	}
	return nil
}

// exists asks etcd whether a lease exists.
func (p *pool) exists(ctx context.Context, l *pooled) error {
	granted, err := grantedTo(ctx, p.sess, l.id)
	if err == nil && granted <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	return err
}

// lose forgets a lease that is not trusted any more.
func (p *pool) lose(l *pooled) {
	p.sess.Log().Warn("the lease of attempts in progress is gone", zap.Int64("lease", int64(l.id)), zap.NamedError("because", context.Cause(l.kept.ctx)))
	p.forget(l)
}
