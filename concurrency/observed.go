package concurrency

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// How calls and permits are reported to the hooks of a session.

// endOfAsking returns how a call for a permit has ended that returns err. ended is the error of its ctx,
// and waited is set if its Wait has passed.
func endOfAsking(err, ended error, waited bool) (observe.Result, observe.Reason) {
	switch {
	case err == nil:
		return observe.Granted, ""
	case errors.Is(err, ErrUnavailable):
		return observe.GaveUp, observe.Unavailable
	case ended != nil && errors.Is(err, ended):
		if errors.Is(ended, context.DeadlineExceeded) {
			return observe.GaveUp, observe.Deadline
		}
		return observe.GaveUp, observe.Canceled
	case errors.Is(err, ErrFull) && waited:
		return observe.GaveUp, observe.Wait
	}
	for _, refusal := range []struct {
		err    error
		reason observe.Reason
	}{{ErrFull, observe.Full}, {ErrHeld, observe.Held}, {ErrLimitMismatch, observe.Mismatch}, {ErrTooMany, observe.TooMany}, {ErrRateExceeded, observe.Exceeded}} {
		if errors.Is(err, refusal.err) {
			return observe.Refused, refusal.reason
		}
	}
	switch {
	case errors.Is(err, ErrInvalid):
		return observe.Error, observe.Invalid
	case errors.Is(err, ErrEvicted):
		return observe.Lost, observe.Evicted
	case errors.Is(err, ErrReleased):
		return observe.Lost, observe.ByID
	case errors.Is(err, ErrClosed):
		return observe.Error, observe.Closed
	}
	return observe.Error, observe.Etcd
}

// endOfHold returns how a permit has ended. session is set if its session's lease had ended.
func endOfHold(lost *LostError, session bool) (observe.Result, observe.Reason) {
	switch {
	case errors.Is(lost.Cause, ErrReleased):
		return observe.Released, observe.ByID
	case errors.Is(lost.Cause, ErrEvicted):
		return observe.Lost, observe.Evicted
	case errors.Is(lost.Cause, ErrTooLong):
		return observe.Lost, observe.TooLong
	case errors.Is(lost.Cause, ErrClosed):
		return observe.Lost, observe.Closed
	case session:
		return observe.Lost, observe.SessionEnded
	}
	return observe.Lost, observe.KeyGone
}

// endOfRelease returns how a call of Release has ended that returns err.
func endOfRelease(err error, session bool) (observe.Result, observe.Reason) {
	lost, ok := errors.AsType[*LostError](err)
	switch {
	case err == nil:
		return observe.Released, ""
	case ok:
		return endOfHold(lost, session)
	}
	return observe.Unconfirmed, ""
}

// holding is the hold of a permit as hooks see it. Permit.mu guards it.
type holding struct {
	span  *hook.Span
	ended *observe.Outcome // nil while it lasts
	at    time.Time        // when it has ended
	late  bool             // its holder has released it after its end, and before that was reported
}

// observe reports the beginning of the hold, for the call that gets the permit. If the permit has ended
// already, that is reported next.
func (p *Permit) observe(ctx context.Context) {
	work, span := p.queue.sess.Hooks().Start(ctx, p.queue.call(observe.Hold, p.ticket.Weight(), p.token))
	p.mu.Lock()
	p.within.Context = work
	h := p.hold
	if h == nil {
		p.hold = &holding{span: span}
	} else {
		h.span = span
	}
	p.mu.Unlock()
	if h != nil {
		p.reportEnd(span, *h.ended)
	}
}

// working returns the ctx of work under the permit: that of the call that got it, with the values that hooks
// have given the hold.
func (p *Permit) working(ctx context.Context) context.Context {
	if !p.queue.sess.Hooks().On() {
		return ctx
	}
	return hook.With(ctx, p.within.Context)
}

// holdEnded reports that the holder has ended the hold, or that it was lost, after that time. Of several
// reports the first one counts.
func (p *Permit) holdEnded(result observe.Result, reason observe.Reason, cause error, held time.Duration) {
	if !p.queue.sess.Hooks().On() {
		return
	}
	o := observe.Outcome{Result: result, Reason: reason, Err: cause, Took: held, Token: p.token}
	p.mu.Lock()
	h := p.hold
	if h == nil { // no caller has it yet, and none may ever
		p.hold = &holding{ended: &o, at: time.Now()}
		p.mu.Unlock()
		return
	}
	again := h.ended != nil
	if !again {
		h.ended, h.at = &o, time.Now()
	}
	late := h.late
	p.mu.Unlock()
	if again {
		return
	}
	p.reportEnd(h.span, o)
	if late {
		p.overrun()
	}
}

// holdLost is holdEnded for an end that is not the holder's own release.
func (p *Permit) holdLost(lost *LostError, held time.Duration) {
	result, reason := endOfHold(lost, p.epoch.Context().Err() != nil)
	p.holdEnded(result, reason, lost, held)
}

func (p *Permit) reportEnd(span *hook.Span, o observe.Outcome) {
	if o.Result == observe.Lost {
		p.queue.sess.Hooks().Event(p.within.Context, observe.PermitLost{Call: span.Call, Reason: o.Reason, Cause: o.Err, HeldFor: o.Took})
	}
	span.End(o)
}

// overrun reports that the holder of a permit releases it only now that it has been lost.
func (p *Permit) overrun() {
	p.mu.Lock()
	h := p.hold
	if h == nil || h.span == nil {
		p.mu.Unlock()
		return
	}
	ended := h.ended
	h.late = ended == nil
	p.mu.Unlock()
	if ended != nil && ended.Result == observe.Lost {
		p.queue.sess.Hooks().Event(p.within.Context, observe.Overrun{Call: h.span.Call, For: time.Since(h.at)})
	}
}

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
