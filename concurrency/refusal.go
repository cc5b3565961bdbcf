package concurrency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency/internal/share"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Why a call has no permit: the queues return values, and errorOf makes the error of them.

// full is how full a queue is, without the caller's own request. As an error it is a refusal because of that.
type full struct {
	queue       *sessionQueue
	limit, used int64
	waiting     int
	unseen      bool // etcd has not shown the queue: only the limit is known
}

func (f *full) Error() string { return f.public().Error() }

// waitEnd is the end of a wait in a queue, by whatever has ended its ctx.
type waitEnd struct{ full *full }

func (*waitEnd) Error() string { return "the wait has ended" }

// fullView describes a queue as it was read, without one request.
func (q *sessionQueue) fullView(v mirror.View, own int64) *full {
	f := &full{queue: q, limit: v.Limit, used: v.Used}
	for _, r := range v.Waiters {
		if r.Create != own {
			f.waiting++
		}
	}
	return f
}

// fullCount describes a queue of so many light requests.
func (q *sessionQueue) fullCount(limit, requests int64) *full {
	return &full{queue: q, limit: limit, used: min(limit, requests), waiting: int(max(0, requests-limit))}
}

// without reports whether a queue of light requests is too full for one more also when so many of them are gone.
func (f *full) without(leaving, maxWaiters int) bool {
	return f.used+int64(f.waiting-leaving) >= f.limit+int64(maxWaiters)
}

// fullBrief describes the queue before a waiting request, as far as a mirror has shown it. While that knows
// nothing of the request yet, the Txn of the request has counted the queue.
func (c *ticket) fullBrief(b mirror.Brief) *full {
	if b.Revision == 0 || b.Revision < c.Token {
		return c.fullFound()
	}
	f := &full{queue: c.queue, limit: b.Limit, used: b.Used, waiting: b.Waiting}
	if b.Waits {
		f.waiting--
	}
	return f
}

// fullFound describes the queue before a request as the Txn that wrote it has counted it. Of heavy requests
// only the number is known: so many are before it that the limit is in use.
func (c *ticket) fullFound() *full {
	if f, ok := c.behind(); ok {
		return f
	}
	q := c.queue
	n := limit.SeenN(q.Limit)
	if !c.found.Known {
		return &full{queue: q, limit: n, unseen: true}
	}
	return q.fullCount(n, max(n, int64(c.found.Ahead)))
}

// behind is fullFound where that shows how many wait.
func (c *ticket) behind() (_ *full, ok bool) {
	q := c.queue
	l := q.Limit.Seen()
	if !c.found.Known || c.found.Heavy || l == nil || l.Revs != c.at {
		return nil, false
	}
	return q.fullCount(l.N, int64(c.found.Ahead)), true
}

// unknown is for a call whose wait has ended while it had no request in the queue: the limit is all that
// is known, or that etcd does not answer.
func (q *sessionQueue) unknown() error {
	if u := q.unavailable(); u != nil {
		return u
	}
	return &full{queue: q, limit: limit.SeenN(q.Limit), unseen: true}
}

// unavailable returns why etcd cannot be asked, or nil if it answers.
func (q *sessionQueue) unavailable() *UnavailableError {
	if o, ok := q.sess.Unavailable(); ok {
		return unavailable(o)
	}
	return nil
}

// unanswered is unavailable for a call that began at a time and has no answer. It is never nil.
func (q *sessionQueue) unanswered(begun time.Time) *UnavailableError {
	o, _ := q.sess.Unanswered(begun)
	return unavailable(o)
}

func unavailable(o engine.Outage) *UnavailableError {
	return &UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err}
}

// turn waits for the turn of a call that began then. If its Wait ends before, the refusal is unknown's.
func (q *sessionQueue) turn(ctx context.Context, turns *engine.Turns, begun time.Time) (leave func(), err error) {
	leave, err = turns.Enter(ctx, begun)
	if err != nil && context.Cause(ctx) == errWaited {
		err = q.unknown()
	}
	return leave, err
}

// errorOf returns the error of a call that has no permit. bounded is its ctx with the bound of Wait or
// TryTimeout, which must not look like the end of the caller's.
func (a *attempt) errorOf(bounded context.Context, err error) error {
	if end, ok := err.(*waitEnd); ok { //nolint:errorlint // nothing wraps it, as nothing wraps a *full
		err = a.waitEnded(bounded, end.full, err)
	} else if bounded.Err() != nil && !errors.Is(err, ErrUnavailable) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = a.waitEnded(bounded, nil, err)
	}
	if f, ok := err.(*full); ok { //nolint:errorlint // likewise
		err = a.refused(f)
	}
	return a.queue.failed(a.doing, err)
}

// waitEnded returns why a call has ended without a permit whose bounded ctx has ended. at is how full the
// queue is, nil if the call has no request in one.
func (a *attempt) waitEnded(bounded context.Context, at *full, err error) error {
	q, own, outage := a.queue, a.caller.Err(), a.queue.unavailable()
	switch {
	case own == nil && at == nil && q.sess.Accepting().Err() != nil:
		return ErrClosed
	case own == nil && context.Cause(bounded) == errTried:
		u := q.unanswered(a.begun)
		if outage == nil && u.LastAnswer.After(a.begun) {
			return q.unknown() // etcd answers, but thousands of calls were before this one
		}
		other := "a deadline in ctx"
		if a.hasWait {
			other = "Wait of more than 0"
		}
		return fmt.Errorf("%w; gave up after %v at endpoints %v; %s sets another bound", u, TryTimeout, q.sess.Etcd().Client.Endpoints(), other)
	case outage != nil:
		if at != nil && !at.unseen {
			outage.Seen = at.public()
			outage.Seen.Level = at.queue.level()
		}
		if own == nil {
			return outage
		}
		return fmt.Errorf("%w: %w", own, outage)
	case own != nil && at != nil && at.unseen:
		return fmt.Errorf("%w: etcd has not shown the queue until then", own)
	case own != nil && at != nil:
		paused := ""
		if at.limit == 0 {
			paused = " (SetLimit resumes)"
		}
		return fmt.Errorf("%w while it was queued: limit %d%s, held %d, other waiters %d", own, at.limit, paused, at.used, at.waiting)
	case own != nil:
		return err
	case at != nil:
		return at
	}
	u := q.unanswered(a.begun) // Wait was too short for an answer
	if u.LastAnswer.After(a.begun) {
		return q.unknown() // etcd answers, but not so soon
	}
	return u
}

// public is the form of a refusal for callers.
func (f *full) public() *FullError {
	return &FullError{Name: f.queue.name, Limit: int(f.limit), Used: int(f.used), Waiting: f.waiting, unseen: f.unseen}
}

// Is reports whether target is ErrFull, or, for the middlewares, whether etcd has not shown the queue.
func (e *FullError) Is(target error) bool {
	return target == ErrFull || e.unseen && target == share.ErrUnseen
}

// refused is public with the level of a limiter that has refused, and with what its holders say of the time
// until a permit is free.
func (a *attempt) refused(f *full) *FullError {
	base := a.queue.base
	if base == nil {
		return f.public()
	}
	f = f.queue.pair.cause(f)
	e := f.public()
	e.Level = f.queue.level()
	if !e.unseen {
		e.RetryAfter = base.holds.retryAfter(e.Waiting, e.Limit)
	}
	return e
}

// level returns which queue of a limiter this is, if it is one.
func (q *sessionQueue) level() Level {
	switch {
	case q.limiter != nil:
		return LevelTotal
	case q.base != nil:
		return LevelKey
	default:
		return ""
	}
}
