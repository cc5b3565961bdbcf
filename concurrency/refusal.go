package concurrency

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/entry"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// Why a call has no permit: a queue returns values, and errorOf makes the error of them.

// errorOf returns the error of a call that has no permit. timed is its ctx with the bound of Wait or
// TryTimeout, which must not look like the end of the caller's.
func (a *attempt) errorOf(timed context.Context, err error) error {
	if end, ok := err.(*queue.WaitEnd); ok { //nolint:errorlint // nothing wraps it, as nothing wraps the others
		err = a.waitEnded(timed, end.Full, err)
	} else if timed.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = a.waitEnded(timed, nil, err)
	}
	option := a.bounding(timed, err)
	err = a.public(err)
	if option != "" {
		err = fmt.Errorf("%w; %s", err, option)
	}
	return a.queue.failed(a.doing, sayBehind(a.behind, err, timed.Err() != nil))
}

// public returns the error of a value by which a queue has refused the call, and another error as it is.
func (a *attempt) public(err error) error {
	switch v := err.(type) { //nolint:errorlint // likewise
	case *queue.Full:
		return a.refused(v)
	case *queue.InUse:
		r := describe(v.Request)
		r.WaitsFor = Level(v.At)
		return &HeldError{Name: a.queue.name, ID: a.ID, Request: r}
	case *entry.TooManyKeys:
		return shownBy{join.Kind(ErrTooMany, fmt.Errorf("the limiter has %d live keys, as many as KeyedLimiterOptions.MaxKeys allows", v.Most))}
	case *entry.Mismatch:
		return &LimitMismatchError{Name: v.Name, Level: Level(v.Level), Stored: int(v.Stored), Wanted: int(v.Wanted)}
	case *queue.Noticed:
		return a.queue.endingBy(v.Token, v.Notice)
	case *queue.TooHeavy:
		return shownBy{tooHeavy(Level(v.At), v.Weight, v.Most)}
	case *queue.Outage:
		return unavailable(v.Outage)
	}
	return err
}

// bounding names the option that has bounded the wait of a call, for its error; empty if that is the caller's ctx,
// or a call that never waits.
func (a *attempt) bounding(timed context.Context, err error) string {
	f, isFull := err.(*queue.Full)   //nolint:errorlint // likewise
	_, silent := err.(*queue.Outage) //nolint:errorlint // likewise
	switch {
	case a.caller.Err() != nil || !isFull && !silent && !errors.Is(err, ErrUnavailable):
		return ""
	case context.Cause(timed) == queue.ErrWaited:
		return fmt.Sprintf("Wait(%v) has passed", a.wait)
	case !isFull || a.try:
		return ""
	case f.Level() == queue.AtTotal && a.agreement.Total.MaxWaiters > 0 && !(a.Bounded && a.MaxWaiters == 0):
		return fmt.Sprintf("KeyedLimiterOptions.MaxTotalWaiters of %d admits no more to the queue", a.agreement.Total.MaxWaiters)
	case a.Bounded:
		return fmt.Sprintf("MaxWaiters(%d) admits no more to the queue", a.MaxWaiters)
	default:
		return ""
	}
}

// waitEnded returns why a call has ended without a permit whose timed ctx has ended. at is how full the
// queue is, nil if the call has no request in one.
func (a *attempt) waitEnded(timed context.Context, at *queue.Full, err error) error {
	q, own, outage := a.queue, a.caller.Err(), a.queue.unavailable()
	switch {
	case own == nil && at == nil && engine.Refuses(a.caller, q.sess):
		return ErrClosed
	case own == nil && context.Cause(timed) == errTried:
		u := q.unanswered(a.begun)
		if outage == nil && u.LastAnswer.After(a.begun) {
			return q.Unknown() // etcd answers, but thousands of calls were before this one
		}
		other := "a deadline in ctx"
		if a.hasWait {
			other = "Wait of more than 0"
		}
		return fmt.Errorf("%w; gave up after %v at endpoints %v; %s sets another bound", u, TryTimeout, q.sess.Etcd().Client.Endpoints(), other)
	case outage != nil:
		if at != nil && !at.Unseen {
			outage.Seen = q.full(at)
			outage.Seen.Level = Level(at.Level())
		}
		if own == nil {
			return outage
		}
		return fmt.Errorf("%w: %w", own, outage)
	case own != nil && at != nil:
		return fmt.Errorf("%w while it was queued: %s", own, q.full(at).counts())
	case own != nil:
		return engine.EndedBy(own, err)
	case at != nil:
		return at
	}
	u := q.unanswered(a.begun) // Wait was too short for an answer
	if u.LastAnswer.After(a.begun) {
		return q.Unknown() // etcd answers, but not so soon
	}
	return u
}

// refused is full with the level of a limiter that has refused, and with what its holders say of the time
// until a permit is free.
func (a *attempt) refused(f *queue.Full) *FullError {
	q := a.queue
	if q.base == nil {
		return q.full(f)
	}
	f = f.Cause()
	e := q.full(f)
	e.Level = Level(f.Level())
	if !e.unseen {
		e.RetryAfter = q.base.HoldTimes.RetryAfter(e.Waiting, e.Limit)
	}
	return e
}
