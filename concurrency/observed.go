package concurrency

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/observe"
)

// How calls, permits and limits are reported to the hooks of a session.

// call describes a call in the queue.
func (q *sessionQueue) call(op observe.Op, weight, token int64) observe.Call {
	c := observe.Call{Op: op, Kind: q.kind, Name: q.name, Weight: int(weight), Token: token}
	switch {
	case q.kind == observe.Limiter:
		c.Name, c.Key, _ = strings.Cut(q.name, "/")
	case q.kind == observe.Election && op == observe.Acquire:
		c.Op = observe.Campaign
	case q.kind == observe.Election && op == observe.Hold:
		c.Op = observe.Lead
	}
	return c
}

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

func (q *sessionQueue) reportOutage(policy string, err error, lasted time.Duration) {
	c := q.call("", 0, 0)
	e := observe.OutagePolicy{Namespace: q.sess.Hooks().Namespace(), Kind: c.Kind, Name: c.Name, Policy: policy, Active: err != nil, Err: err}
	if err == nil {
		e.Lasted = lasted
	}
	q.sess.Post(e)
}

// askInOutage asks etcd in an outage as long as no request does, and calls answered at its first answer. A session
// without a lease does not ask: its requests would wait for one.
func (q *sessionQueue) askInOutage(idle func(now time.Time) (on, idle bool), answered func()) {
	q.sess.Background(func() {
		t := time.NewTicker(outage.Every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-q.sess.Accepting().Done():
				return
			}
			on, alone := idle(time.Now())
			if !on {
				return
			}
			if !alone || !q.sess.Trusted() {
				continue
			}
			ctx, cancel := context.WithTimeout(q.sess.Accepting(), outage.Every)
			_, err := q.sess.Get(ctx, q.Keys.Limit)
			cancel()
			if err == nil {
				q.contain(answered)
				return
			}
		}
	})
}

// contain calls what calls a function of the user's in the background, where a panic would end the process.
func (q *sessionQueue) contain(answered func()) {
	defer func() {
		if v := recover(); v != nil {
			q.sess.Log().Warn("a hook has panicked: OnOutage of a middleware; the outage has ended: mend the hook (Options.OnOutage)",
				zap.String("panic", fmt.Sprint(v)), zap.Stack("stack"))
		}
	}()
	answered()
}

// limitChanged reports that the session has seen another limit than before.
func (q *sessionQueue) limitChanged(from, to int64) {
	c := q.call("", 0, 0)
	q.sess.Post(observe.LimitChanged{Namespace: q.sess.Hooks().Namespace(), Kind: c.Kind, Name: c.Name, Key: c.Key, Level: string(q.Level()), From: int(from), To: int(to)})
}
