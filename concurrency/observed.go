package concurrency

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/entry"
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
	if full, ok := errors.AsType[*FullError](err); ok && full.isPaused() {
		return observe.Refused, observe.Paused
	}
	for _, refusal := range []struct {
		err    error
		reason observe.Reason
	}{{ErrFull, observe.Full}, {ErrHeld, observe.Held}, {ErrLimitMismatch, observe.Mismatch}, {ErrTooMany, observe.TooMany}} {
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

// observedHold is the hold of a permit as hooks see it; nil without hooks.
type observedHold struct {
	hooks *hook.Set

	mu    sync.Mutex
	ctx   context.Context  // of the work
	span  *hook.Span       // nil until a caller has the permit
	ended *observe.Outcome // nil while it lasts
	at    time.Time        // when it has ended
	late  bool             // its holder has released it after its end, and before that was reported
}

// work returns the ctx of the work under the permit, or nil before begin has made it.
func (h *observedHold) work() context.Context {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ctx
}

// begin reports the beginning of the hold, for the call that gets the permit. If the permit has ended already, that is
// reported next.
func (h *observedHold) begin(ctx context.Context, call observe.Call) {
	work, span := h.hooks.Start(ctx, call)
	h.mu.Lock()
	h.ctx, h.span = work, span
	ended := h.ended
	h.mu.Unlock()
	if ended != nil {
		h.report(*ended)
	}
}

// end reports that the holder has ended the hold, or that it was lost. Of several reports the first one counts. If no
// caller has the permit yet, and none may ever, begin reports it.
func (h *observedHold) end(o observe.Outcome) {
	if h == nil {
		return
	}
	h.mu.Lock()
	if h.ended != nil {
		h.mu.Unlock()
		return
	}
	ended := o // not o: without hooks, it stays off the heap
	h.ended, h.at = &ended, time.Now()
	begun, late := h.span != nil, h.late
	h.mu.Unlock()
	if begun {
		h.report(o)
	}
	if late {
		h.overrun()
	}
}

func (h *observedHold) report(o observe.Outcome) {
	if o.Result == observe.Lost {
		h.hooks.Event(h.ctx, observe.PermitLost{Call: h.span.Call, Reason: o.Reason, Cause: o.Err, HeldFor: o.Took})
	}
	h.span.End(o)
}

// overrun reports that the holder of a permit releases it only now that it has been lost.
func (h *observedHold) overrun() {
	if h == nil {
		return
	}
	h.mu.Lock()
	begun, ended := h.span != nil, h.ended
	h.late = begun && ended == nil
	h.mu.Unlock()
	if begun && ended != nil && ended.Result == observe.Lost {
		h.hooks.Event(h.ctx, observe.Overrun{Call: h.span.Call, For: time.Since(h.at)})
	}
}

// maxBlocking bounds the holders in one report.
const maxBlocking = 10

// reporter is the part of a call that reports why its request waits, a queue.Caller.
type reporter struct {
	queue   *sessionQueue
	entry   entry.Entry
	fetches func(before *queue.Full) // is called when it waits, if it is for whichever call is first in the local queue; or nil
}

func (c *reporter) Landed() { c.entry.Landed() }

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
					lease := q.Leases.State(ctx, clientv3.LeaseID(blocker.Lease), q.reportEvery/2)
					blocker.Renewed, blocker.ExpiresBy = lease.Renewed, lease.ExpiresBy
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
	if !q.sess.Callback(report) {
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
