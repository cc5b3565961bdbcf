package keep

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Key is the key of a permit that callers of one process may have one after the other. For its epoch
// it is the holder of that key, from the grant to the end.
type Key struct {
	keeper   *Keeper
	epoch    *engine.Epoch
	ticket   *queue.Ticket
	granted  time.Duration // by the keeper's clock
	lowered  int64         // Keeper.lowered then
	released error         // the cause of the end of each permit that its holder has released; without a token, which may be the next holder's

	// holder is of the permit that has the key, nil while it is idle, passing while it has no caller, and ended
	// once that is so for good. It only changes by compare-and-swap, so each change has one author.
	holder atomic.Pointer[Holder]
	idle   atomic.Int64 // since when it was idle last, by the keeper's clock

	// These belong to the caller that has set holder last.
	trusted time.Duration // until when the clocks need not be looked at
	listed  bool

	_ [64]byte // other keys are used by other processors
}

var (
	passing = new(Holder) // the holder of a key that was idle, and is offered to the local queue
	ended   = new(Holder) // the holder of a key that is deleted, or is about to be
)

// reuse gives the key to a new permit for a call, if it is idle and may stay.
func (c *Key) reuse(ctx context.Context, permit func() *Holder, now time.Duration) bool {
	if c.holder.Load() != nil {
		return false
	}
	h := permit()
	if !c.assign(ctx, nil, h, now) {
		return false
	}
	if !c.idleness(now, now-time.Duration(c.idle.Load())).stays(c.keeper.Keep) && h.Permit.Vacate(c.released) {
		c.drop(h)
		return false
	}
	h.Permit.Bound()
	return true
}

// assign gives the key to a permit, from the one that has it or nil. The permit is not bound yet: that is
// for the call that gets it.
func (c *Key) assign(ctx context.Context, from, h *Holder, now time.Duration) bool {
	h.key = c
	h.Permit.Begin(ctx, c.epoch, c.ticket, c.keeper.base.Add(now))
	return c.holder.CompareAndSwap(from, h)
}

// release is Holder.Release.
func (c *Key) release(h *Holder) (stayed bool) {
	k := c.keeper
	now := k.now()
	cause := c.released
	if h.fenced.Load() == asked {
		cause = h.Permit.Ending()
	}
	if !h.Permit.Lasts(c.isTrusted(now)) || !h.Permit.Vacate(cause) {
		return false
	}
	stays := c.idleness(now, 0).stays(k.Keep)
	if !stays && k.Waiting() == 0 || !h.seal() {
		k.startWatch(now)
		return false
	}
	if !k.pass(c, h, now) && !(stays && c.setIdle(h, now)) {
		h.fenced.Store(0)
		k.startWatch(now)
		return false
	}
	h.Permit.Stayed(k.base.Add(now))
	return true
}

// setIdle has the key idle, or removed if it may not stay any more. It returns false if it was evicted or
// lost meanwhile.
func (c *Key) setIdle(h *Holder, now time.Duration) bool {
	k := c.keeper
	c.idle.Store(int64(now))
	if !c.listed {
		c.listed = true
		k.list(c)
	}
	if !c.holder.CompareAndSwap(h, nil) {
		k.unlist(c) // what has ended it may have done so before it was listed
		return false
	}
	switch {
	case !k.isQuiet(now): // since a moment ago: watch may have overlooked this one
		c.drop(nil)
	case k.Waiting() > 0: // likewise: a call that has found nothing idle
		k.offer(now)
	default:
		k.recent.Put(c)
	}
	return true
}

// idleness returns what decides over the key, for its holder.
func (c *Key) idleness(now, idle time.Duration) idleness {
	return idleness{quiet: c.keeper.isQuiet(now), trusted: c.isTrusted(now), age: now - c.granted, idle: idle}
}

// isTrusted reports whether the lease may be trusted. Its deadline cannot move back.
func (c *Key) isTrusted(now time.Duration) bool {
	if now < c.trusted {
		return true
	}
	e := c.epoch
	if !e.Trusted() {
		return false
	}
	c.trusted = now + min(trustCounts, time.Until(e.Deadline()))
	return true
}

// end takes the key from whatever has it, and returns the permit that had it, or nil. first is false if it
// had ended before. Its removal is the caller's concern.
func (c *Key) end() (p Permit, first bool) {
	switch h := c.holder.Swap(ended); h {
	case ended:
		return nil, false
	case nil:
		c.keeper.Ended()
	case passing: // what offers it finds out
	default:
		p = h.Permit
	}
	c.keeper.unlist(c)
	return p, true
}

// endOf is end if that holder has the key. Otherwise the key has ended, or is another caller's by now.
func (c *Key) endOf(h *Holder) bool {
	if !c.holder.CompareAndSwap(h, ended) {
		return false
	}
	c.keeper.unlist(c)
	return true
}

// drop removes a key that is idle, or whose holder has no caller, in the background.
func (c *Key) drop(h *Holder) {
	switch e, t := c.epoch, c.ticket; {
	case c.endOf(h):
		t.Withdraw(e)
		e.Drop(t.Ticket)
	case h == nil: // it is in use, or has ended
		return
	default: // it was lost meanwhile, which no caller learns
		e.Drop(t.Ticket)
		e.Free(t.Ticket)
	}
	c.keeper.Ended()
}

// gone ends a key that is gone from etcd, and the permit that has it. No call gets it any more once
// gone has returned; how the permit was lost is found out in the background.
func (c *Key) gone() {
	p, first := c.end()
	if !first {
		return
	}
	c.keeper.Session.Background(func() {
		if p != nil {
			p.KeyGone()
			return
		}
		c.epoch.Drop(c.ticket.Ticket)
		c.epoch.Free(c.ticket.Ticket)
	})
}

// Lose implements engine.Holder, as do the following methods.
func (c *Key) Lose(cause, reason error) (report func()) {
	if p, _ := c.end(); p != nil {
		return p.Lose(cause, reason)
	}
	return nil
}

// Evicted ends it.
func (c *Key) Evicted(n record.Notice) (report func()) {
	if p, _ := c.end(); p != nil {
		return p.Evicted(n)
	}
	return nil
}

// StepDown has the key released: by the call that has it, or at once if it is idle.
func (c *Key) StepDown(n record.Notice) {
	for {
		switch h := c.holder.Load(); {
		case h == ended:
			return
		case h == nil:
			c.drop(nil)
		case h != passing && h.Fence():
			h.Permit.StepDown(n)
			return
		default: // it is passing on, or becoming idle
			runtime.Gosched()
		}
	}
}

// Released reports whether it is idle, too: Close need not wait for a caller.
func (c *Key) Released() bool {
	h := c.holder.Load()
	return h == nil || h == passing || h == ended || h.Permit.Released()
}
