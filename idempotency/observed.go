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

// described describes a call for a request.
func described(s *Store, op observe.Op, key Key) observe.Call {
	c := observe.Call{Op: op, Kind: observe.Store, Name: s.name, Operation: key.Op, Scope: key.Scope}
	if key.check(s.opts.SingleTenant) == nil {
		c.Ref = s.keys.Entry(key.Scope, key.Op, key.ID).Ref
	}
	return c
}

// beginSeen is begin as hooks see it.
func beginSeen(ctx context.Context, s *Store, via string, key Key, payload any, opts []Option) (*Attempt, *Outcome, error) {
	begun := time.Now()
	within, span := s.sess.Hooks().Start(ctx, described(s, observe.Begin, key))
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

// execution is an attempt as hooks see it; nil without hooks.
type execution struct {
	hooks  *hook.Set
	span   *hook.Span
	begun  time.Time
	overAt atomic.Int64 // when the attempt's context has ended, from begun; 0 before
}

// execute reports the beginning of an attempt, and returns the ctx of its work.
func execute(outer context.Context, a *Attempt) (context.Context, *execution) {
	hooks := a.store.sess.Hooks()
	if !hooks.On() {
		return outer, nil
	}
	c := described(a.store, observe.Execute, a.key)
	c.Attempt, c.Token = a.Attempt(), a.token
	work, span := hooks.Start(hook.Outer(outer), c)
	return work, &execution{hooks: hooks, span: span, begun: time.Now()}
}

// end reports the end of the attempt, unless it was reported.
func (e *execution) end(result observe.Result, reason observe.Reason, cause error) {
	if e != nil {
		c := e.span.Call
		e.span.End(observe.Outcome{Result: result, Reason: reason, Err: cause, Took: time.Since(e.begun), Token: c.Token, Attempt: c.Attempt})
	}
}

// lost reports that the attempt's context has ended before the attempt was settled.
func (e *execution) lost(cause error) {
	reason := observe.SessionEnded
	switch {
	case errors.Is(cause, ErrTooLong):
		reason = observe.TooLong
	case errors.Is(cause, ErrClosed):
		reason = observe.Closed
	case errors.Is(cause, ErrFenced):
		reason = observe.Fenced
	}
	e.end(observe.Lost, reason, cause)
}

// overrun reports that the work has gone on after the end of ctx, the attempt's context. That may have ended so
// recently that its time is not known yet.
func (e *execution) overrun(ctx context.Context) {
	if e == nil {
		return
	}
	over := time.Duration(0)
	if at := e.overAt.Load(); at != 0 {
		over = max(0, time.Since(e.begun)-time.Duration(at))
	}
	e.hooks.Event(ctx, observe.Overrun{Call: e.span.Call, For: over})
}

// endOfAttempt returns how an attempt has ended that was settled with err.
func endOfAttempt(e end, err error) (observe.Result, observe.Reason) {
	switch {
	case errors.Is(err, ErrFenced):
		return observe.Lost, observe.Fenced
	case e.state == record.AttemptFailed, e.state == record.AttemptReleased && e.ran:
		return observe.Failed, notConfirmed(err)
	case e.state == record.AttemptReleased:
		return observe.Released, notConfirmed(err)
	case e.state == record.AttemptDone:
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
func finishSeen(ctx context.Context, a *Attempt, e end) error {
	hooks, begun := a.store.sess.Hooks(), time.Now()
	c := described(a.store, observe.Record, a.key)
	c.Attempt, c.Token = a.Attempt(), a.token
	late := a.interrupted()
	ctx, span := hooks.Start(ctx, c)
	defer span.Unwind(begun) // so may a Codec
	err := a.settle(ctx, e)
	out := observe.Outcome{Err: err, Took: time.Since(begun), Attempt: c.Attempt, Token: c.Token}
	out.Result, out.Reason = endOfRecord(err)
	span.End(out)
	if late != nil && !errors.Is(err, ErrSettled) {
		a.seen.overrun(a.Context())
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
