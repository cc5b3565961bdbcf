package idempotency

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// How calls and attempts are reported to the hooks of the session.

// call describes a call for a request.
func (s *Store) call(op observe.Op, key Key) observe.Call {
	c := observe.Call{Op: op, Kind: observe.Store, Name: s.name, Operation: key.Op, Scope: key.Scope}
	if key.check(s.opts.SingleTenant) == nil {
		c.Ref = s.keys.Entry(key.Scope, key.Op, key.ID).Ref
	}
	return c
}

// beginSeen is begin as hooks see it.
func (s *Store) beginSeen(ctx context.Context, via string, key Key, payload any, opts []Option) (*Attempt, *Outcome, error) {
	begun := time.Now()
	within, span := s.sess.Hooks().Start(ctx, s.call(observe.Begin, key))
	defer span.Unwind(begun) // a payload may have methods of its own
	a, out, err := s.begin(within, via, key, payload, opts)
	o := observe.Outcome{Err: err, Took: time.Since(begun)}
	o.Result, o.Reason = endOfBegin(out != nil, err, ctx.Err())
	switch {
	case a != nil:
		o.Attempt, o.Token = a.Attempt(), a.Token()
	case out != nil:
		o.Attempt, o.Token = out.Attempt, out.Token
	}
	span.End(o)
	return a, out, err
}

// endOfBegin returns how a call of Begin has ended that returns err. ended is the error of its ctx.
func endOfBegin(replayed bool, err, ended error) (observe.Result, observe.Reason) {
	switch {
	case replayed:
		return observe.Replayed, ""
	case err == nil:
		return observe.Granted, ""
	case errors.Is(err, concurrency.ErrUnavailable):
		return observe.GaveUp, observe.Unavailable
	case ended != nil && errors.Is(err, context.DeadlineExceeded):
		return observe.GaveUp, observe.Deadline
	case ended != nil && errors.Is(err, ended):
		return observe.GaveUp, observe.Canceled
	}
	for _, refusal := range []struct {
		err    error
		reason observe.Reason
	}{
		{ErrInProgress, observe.InProgress}, {ErrMismatch, observe.Mismatch}, {ErrUnknown, observe.Unknown},
		{ErrScopeFull, observe.TooMany}, {ErrNearQuota, observe.NearQuota},
	} {
		if errors.Is(err, refusal.err) {
			return observe.Refused, refusal.reason
		}
	}
	return observe.Error, kindOf(err)
}

// kindOf returns of what kind an error is that is no refusal.
func kindOf(err error) observe.Reason {
	switch {
	case errors.Is(err, ErrInvalid):
		return observe.Invalid
	case errors.Is(err, ErrClosed):
		return observe.Closed
	}
	return observe.Etcd
}

// execution is an attempt as hooks see it.
type execution struct {
	span   *hook.Span
	begun  time.Time
	overAt atomic.Int64 // when the attempt's context has ended, from begun; 0 before
}

// observe reports the beginning of an attempt, and returns the ctx of its work.
func (a *Attempt) observe(outer context.Context) context.Context {
	hooks := a.store.sess.Hooks()
	if !hooks.On() {
		return outer
	}
	c := a.store.call(observe.Execute, a.key)
	c.Attempt, c.Token = a.Attempt(), a.token
	work, span := hooks.Start(hook.Outer(outer), c)
	a.seen = &execution{span: span, begun: time.Now()}
	return work
}

// executed reports the end of the attempt, unless it was reported.
func (a *Attempt) executed(result observe.Result, reason observe.Reason, cause error) {
	if e := a.seen; e != nil {
		e.span.End(observe.Outcome{Result: result, Reason: reason, Err: cause, Took: time.Since(e.begun), Token: a.token, Attempt: a.Attempt()})
	}
}

// executionLost reports that the attempt's context has ended before the attempt was settled.
func (a *Attempt) executionLost(cause error) {
	reason := observe.SessionEnded
	switch {
	case errors.Is(cause, ErrTooLong):
		reason = observe.TooLong
	case errors.Is(cause, ErrClosed):
		reason = observe.Closed
	}
	a.executed(observe.Lost, reason, cause)
}

// endOfAttempt returns how an attempt has ended that was settled with err.
func endOfAttempt(o *settlement, err error) (observe.Result, observe.Reason) {
	switch {
	case errors.Is(err, ErrFenced):
		return observe.Lost, observe.Fenced
	case o.state == record.AttemptFailed, o.state == record.AttemptReleased && o.ran:
		return observe.Failed, notConfirmed(err)
	case o.state == record.AttemptReleased:
		return observe.Released, notConfirmed(err)
	case o.state == record.AttemptDone:
		return observe.Done, notConfirmed(err)
	}
	return observe.Abandoned, notConfirmed(err)
}

func notConfirmed(err error) observe.Reason {
	if err != nil {
		return observe.NotConfirmed
	}
	return ""
}

// finishSeen is finish as hooks see it.
func (a *Attempt) finishSeen(ctx context.Context, o *settlement) error {
	hooks, begun := a.store.sess.Hooks(), time.Now()
	c := a.store.call(observe.Record, a.key)
	c.Attempt, c.Token = a.Attempt(), a.token
	late := a.interrupted()
	ctx, span := hooks.Start(ctx, c)
	defer span.Unwind(begun) // so may a Codec
	err := a.settle(ctx, o)
	out := observe.Outcome{Err: err, Took: time.Since(begun), Attempt: c.Attempt, Token: c.Token}
	out.Result, out.Reason = endOfRecord(err)
	span.End(out)
	if late != nil && !errors.Is(err, ErrSettled) {
		a.overrun()
	}
	return err
}

// endOfRecord returns how a call has ended that settles an attempt and returns err.
func endOfRecord(err error) (observe.Result, observe.Reason) {
	switch {
	case err == nil:
		return observe.Done, ""
	case errors.Is(err, ErrNotRecorded):
		return observe.Unconfirmed, ""
	case errors.Is(err, ErrFenced):
		return observe.Lost, observe.Fenced
	case errors.Is(err, ErrConflict):
		return observe.Refused, observe.Conflict
	case errors.Is(err, ErrSettled):
		return observe.Refused, observe.Settled
	}
	return observe.Error, kindOf(err)
}

// overrun reports that the work has gone on after the end of the attempt's context. That may have ended so recently
// that its time is not known yet.
func (a *Attempt) overrun() {
	e := a.seen
	if e == nil {
		return
	}
	over := time.Duration(0)
	if at := e.overAt.Load(); at != 0 {
		over = max(0, time.Since(e.begun)-time.Duration(at))
	}
	a.store.sess.Hooks().Event(a.Context(), observe.Overrun{Call: e.span.Call, For: over})
}
