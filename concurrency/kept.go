package concurrency

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// keptKey is the key of a permit that callers of one process may have one after the other. For its epoch
// it is the holder of that key, from the grant to the end.
type keptKey struct {
	keeper   *keeper
	epoch    *engine.Epoch
	ticket   *queue.Ticket
	granted  time.Duration // by the keeper's clock
	lowered  int64         // keeper.lowered then
	released *LostError    // the cause of the end of each permit that its holder has released; without a token, which may be the next holder's

	// holder is the permit that has the key, nil while it is idle, and ended once that is so for good. It only changes by compare-and-swap, so each change has one author.
	holder atomic.Pointer[Permit]
	idle   atomic.Int64 // since when it was idle last, by the keeper's clock

	// These belong to the caller that has set holder last.
	trusted time.Duration // until when the clocks need not be looked at
	listed  bool

	_ [64]byte // other keys are used by other processors
}

// ended is the holder of a key that is deleted, or is about to be.
var ended = new(Permit)

// The states of Permit.fenced, which leaves the first one once. A key that was asked for is what a
// fencing resource or a Txn knows its holder by, so it has no other holder (W18 in
// internal/proof/tested-failures.md).
const (
	asked  = iota + 1 // for Token or Guard: the permit does not stay
	sealed            // it has stayed: it shows its key no more
)

// fence reports whether a permit may show its token, and has it not kept from now on.
func (p *Permit) fence() bool {
	return p.kept == nil || p.fenced.CompareAndSwap(0, asked) || p.fenced.Load() == asked
}

// reuse gives the key to a permit for a call, if it is idle and may stay.
func (c *keptKey) reuse(ctx context.Context, p *Permit, now time.Duration) bool {
	if c.holder.Load() != nil {
		return false
	}
	k := c.keeper
	if !c.assign(ctx, nil, p, now) {
		return false
	}
	if !c.idleness(now, now-time.Duration(c.idle.Load())).stays(k.keep) && c.vacate(p) {
		c.drop(p)
		return false
	}
	p.bound()
	return true
}

// assign gives the key to a permit, from the one that has it or nil. The permit is not bound yet: that is
// for the call that gets it.
func (c *keptKey) assign(ctx context.Context, from, p *Permit, now time.Duration) bool {
	p.kept, p.epoch, p.ticket, p.token, p.since = c, c.epoch, c.ticket, c.ticket.Token, c.keeper.base.Add(now)
	p.begin(ctx)
	return c.holder.CompareAndSwap(from, p)
}

// vacate ends the life of a permit that has the key and no caller, so that nothing but the key's own end
// can end the key from now on. It returns false if it was lost before.
func (c *keptKey) vacate(p *Permit) bool {
	if !p.life.End(c.released) {
		return false
	}
	p.released.Store(true)
	return true
}

// release is Release of a permit if it passes to a call in the local queue, or stays for the next one. If
// not, nothing is released.
func (c *keptKey) release(p *Permit) (stayed bool) {
	k := c.keeper
	now := k.now()
	cause := c.released
	if p.fenced.Load() == asked {
		cause = p.queue.ending(p.ticket, ErrReleased, "")
	}
	if (p.maxHold > 0 || !c.isTrusted(now)) && p.Err() != nil || !p.life.End(cause) {
		return false
	}
	p.released.Store(true)
	stays := c.idleness(now, 0).stays(k.keep)
	if !stays && k.local.length.Load() == 0 || !p.fenced.CompareAndSwap(0, sealed) {
		k.startWatch(now)
		return false
	}
	if !k.pass(c, p, now) && !(stays && c.setIdle(p, now)) {
		p.fenced.Store(0)
		k.startWatch(now)
		return false
	}
	p.finish(nil)
	p.holdEnded(observe.Released, "", nil, now-p.since.Sub(k.base))
	return true
}

// setIdle has the key idle, or removed if it may not stay any more. It returns false if it was evicted or
// lost meanwhile.
func (c *keptKey) setIdle(p *Permit, now time.Duration) bool {
	k := c.keeper
	c.idle.Store(int64(now))
	if !c.listed {
		c.listed = true
		k.list(c)
	}
	if !c.holder.CompareAndSwap(p, nil) {
		k.unlist(c) // what has ended it may have done so before it was listed
		return false
	}
	switch {
	case !k.isQuiet(now): // since a moment ago: watch may have overlooked this one
		c.drop(nil)
	case k.local.length.Load() > 0: // likewise: a call that has found nothing idle
		k.offer(now)
	default:
		k.recent.Put(c)
	}
	return true
}

// idleness returns what decides over the key, for its holder.
func (c *keptKey) idleness(now, idle time.Duration) idleness {
	return idleness{quiet: c.keeper.isQuiet(now), trusted: c.isTrusted(now), age: now - c.granted, idle: idle}
}

// isTrusted reports whether the lease may be trusted. Its deadline cannot move back.
func (c *keptKey) isTrusted(now time.Duration) bool {
	if now < c.trusted {
		return true
	}
	e := c.epoch
	if !e.Trusted() {
		return false
	}
	c.trusted = now + min(trustFor, time.Until(e.Deadline()))
	return true
}

// end takes the key from whatever has it, and returns the permit that had it, or nil. first is false if it
// had ended before. Its removal is the caller's concern.
func (c *keptKey) end() (p *Permit, first bool) {
	p = c.holder.Swap(ended)
	if p == ended {
		return nil, false
	}
	c.keeper.unlist(c)
	if p == nil {
		c.keeper.queue.sharing.permits.Add(-1)
	}
	return p, true
}

// endOf is end if that permit has the key. Otherwise the key has ended, or is another caller's by now.
func (c *keptKey) endOf(p *Permit) bool {
	if !c.holder.CompareAndSwap(p, ended) {
		return false
	}
	c.keeper.unlist(c)
	return true
}

// drop removes a key that is idle, or whose permit was vacated, in the background.
func (c *keptKey) drop(p *Permit) {
	if !c.holder.CompareAndSwap(p, ended) {
		return
	}
	k, e := c.keeper, c.epoch
	k.unlist(c)
	k.queue.sharing.permits.Add(-1)
	e.Withdraw(c.ticket.Ticket, c.ticket.DeletionRefused())
	e.Drop(c.ticket.Ticket)
}

// keyGone ends a key that is gone from etcd, and the permit that has it. No call gets it any more once
// keyGone has returned; how the permit was lost is found out in the background.
func (c *keptKey) keyGone() {
	p, first := c.end()
	if !first {
		return
	}
	c.keeper.queue.sess.Background(func() {
		if p != nil {
			p.keyGone()
			return
		}
		c.epoch.Drop(c.ticket.Ticket)
		c.epoch.Free(c.ticket.Ticket)
	})
}

// Lose implements engine.Holder, as do the following methods.
func (c *keptKey) Lose(cause, reason error) (report func()) {
	if p, _ := c.end(); p != nil {
		return p.lose(c.keeper.queue.ending(c.ticket, cause, reason.Error()))
	}
	return nil
}

// Evicted ends it.
func (c *keptKey) Evicted(n record.Notice) (report func()) {
	if p, _ := c.end(); p != nil {
		return p.lose(c.keeper.queue.endingBy(c.ticket, n))
	}
	return nil
}

// StepDown has the key released: by the call that has it, or at once if it is idle.
func (c *keptKey) StepDown(n record.Notice) {
	for {
		switch p := c.holder.Load(); {
		case p == ended:
			return
		case p == nil:
			c.drop(nil)
		case p.fence():
			p.askToStepDown(n)
			return
		default: // it is passing on, or becoming idle
			runtime.Gosched()
		}
	}
}

// Released reports whether it is idle, too: Close need not wait for a caller.
func (c *keptKey) Released() bool {
	p := c.holder.Load()
	return p == nil || p == ended || p.released.Load()
}
