package concurrency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// waitEnded returns why a wait in the queue has ended without a permit, by Wait or by the
// caller's ctx. full is how full the queue is, as far as the session knows.
func (q *sessionQueue) waitEnded(ctx context.Context, full *FullError) error {
	waited := context.Cause(ctx) == errWaited
	unavailable := q.unavailable()
	switch {
	case unavailable != nil:
		full.Level = q.level()
		unavailable.Seen = full
		if waited {
			return unavailable
		}
		return fmt.Errorf("%w: %w", ctx.Err(), unavailable)
	case waited:
		return full
	}
	paused := ""
	if full.Limit == 0 {
		paused = " (SetLimit resumes)"
	}
	return fmt.Errorf("%w while it was queued: limit %d%s, held %d, other waiters %d", ctx.Err(), full.Limit, paused, full.Used, full.Waiting)
}

// ended returns the error of a call whose bounded ctx has ended: by Wait or TryTimeout,
// which are not the caller's ctx and must not look like it, or by that. It adds that etcd
// did not answer.
func (q *sessionQueue) ended(ctx, bounded context.Context, begun time.Time, err error) error {
	if ctx.Err() == nil && context.Cause(bounded) == errTried && errors.Is(err, bounded.Err()) {
		if unavailable := q.unanswered(begun); unavailable.LastAnswer.After(begun) {
			return q.fullUnseen() // etcd answers, but thousands of calls were before this one
		}
		return fmt.Errorf("%w; gave up after %v at endpoints %v; a deadline in ctx sets another bound", q.unanswered(begun), TryTimeout, q.sess.Etcd().Client.Endpoints())
	}
	if bounded.Err() == nil || !errors.Is(err, bounded.Err()) || errors.Is(err, ErrUnavailable) {
		return err
	}
	unavailable := q.unavailable()
	switch {
	case ctx.Err() != nil && unavailable != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), unavailable)
	case ctx.Err() != nil:
		return err
	case unavailable == nil: // Wait was too short for an answer
		unavailable = q.unanswered(begun)
		if unavailable.LastAnswer.After(begun) {
			return q.fullUnseen() // etcd answers, but not so soon
		}
	}
	return unavailable
}

// seen returns how full the queue is for a waiting request, as far as its mirror knows.
func (q *sessionQueue) seen(m *mirror.Mirror, c *ticket) *FullError {
	b, _ := m.Brief(c.Key, c.Token, 0)
	full := &FullError{Name: q.name, Limit: int(b.Limit), Used: int(b.Used), Waiting: b.Waiting}
	if b.Waits {
		full.Waiting--
	}
	if seen := q.limit.Seen(); seen != nil && (b.Revision == 0 || b.Revision < c.Token) { // the mirror knows nothing yet
		full.Limit = int(seen.N)
	}
	return full
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

// unavailable returns why etcd cannot be asked, or nil if it answers.
func (q *sessionQueue) unavailable() *UnavailableError {
	if o, ok := q.sess.Unavailable(); ok {
		return unavailable(o)
	}
	return nil
}

// unanswered is unavailable for a call that began at a time and has no answer. It is never
// nil.
func (q *sessionQueue) unanswered(begun time.Time) *UnavailableError {
	o, _ := q.sess.Unanswered(begun)
	return unavailable(o)
}

func unavailable(o engine.Outage) *UnavailableError {
	return &UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err}
}

// turn is enter for a call that has waited in the queue, and may have waited long enough.
func (q *sessionQueue) turn(ctx context.Context, turns *engine.Turns, begun time.Time) (leave func(), err error) {
	leave, err = turns.Enter(ctx, begun)
	if err != nil && context.Cause(ctx) == errWaited {
		err = q.fullUnseen()
	}
	return leave, err
}

// fullUnseen is for a call whose wait has ended while it had no place in the queue: the
// limit is all that is known, or that etcd does not answer.
func (q *sessionQueue) fullUnseen() error {
	if u := q.unavailable(); u != nil {
		return u
	}
	full := &FullError{Name: q.name, Limit: int(q.fixed)}
	if seen := q.limit.Seen(); seen != nil {
		full.Limit = int(seen.N)
	}
	return full
}
