package concurrency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/mirror"
)

// waitEnded returns why a wait in the queue has ended without a permit, by Wait or by the
// caller's ctx.
func (g *gate) waitEnded(ctx context.Context, m *mirror.Mirror, c *claim) error {
	unavailable := g.sess.unavailable()
	if unavailable != nil {
		unavailable.Seen = g.seen(m, c)
	}
	switch waited := context.Cause(ctx) == errWaited; {
	case waited && unavailable != nil:
		return unavailable
	case waited:
		return g.seen(m, c)
	case unavailable != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), unavailable)
	}
	full := g.seen(m, c)
	return fmt.Errorf("%w while it was queued: limit %d, held %d, other waiters %d", ctx.Err(), full.Limit, full.Used, full.Waiting)
}

// ended returns the error of a call whose bounded ctx has ended: by Wait or TryTimeout,
// which are not the caller's ctx and must not look like it, or by that. It adds that etcd
// did not answer.
func (g *gate) ended(ctx, bounded context.Context, begun time.Time, err error) error {
	if ctx.Err() == nil && context.Cause(bounded) == errTried && errors.Is(err, bounded.Err()) {
		if unavailable := g.sess.unanswered(begun); unavailable.LastAnswer.After(begun) {
			return g.fullUnseen() // etcd answers, but thousands of calls were before this one
		}
		return fmt.Errorf("%w; gave up after %v at endpoints %v; a deadline in ctx sets another bound", g.sess.unanswered(begun), TryTimeout, g.sess.client.Endpoints())
	}
	if bounded.Err() == nil || !errors.Is(err, bounded.Err()) || errors.Is(err, ErrUnavailable) {
		return err
	}
	unavailable := g.sess.unavailable()
	switch {
	case ctx.Err() != nil && unavailable != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), unavailable)
	case ctx.Err() != nil:
		return err
	case unavailable == nil: // Wait was too short for an answer
		unavailable = g.sess.unanswered(begun)
		if unavailable.LastAnswer.After(begun) {
			return g.fullUnseen() // etcd answers, but not so soon
		}
	}
	return unavailable
}

// unanswered returns since when a call has no answer that began then.
func (s *Session) unanswered(begun time.Time) *UnavailableError {
	u := s.unavailable()
	if u == nil {
		u, _ = s.contact.trouble()
	}
	if u.Since.IsZero() {
		u.Since = begun
	}
	return u
}

// seen returns how full the queue is for a waiting request, as far as its mirror knows.
func (g *gate) seen(m *mirror.Mirror, c *claim) *FullError {
	b, _ := m.Brief(c.key, c.token, 0)
	full := &FullError{Name: g.name, Limit: int(b.Limit), Used: int(b.Used), Waiting: b.Waiting}
	if b.Waits {
		full.Waiting--
	}
	if seen := g.limit.Load(); b.Revision < c.token && seen != nil { // the mirror knows nothing yet
		full.Limit = int(seen.limit)
	}
	return full
}

// unavailable returns why etcd cannot be asked, or nil if it answers.
func (s *Session) unavailable() *UnavailableError {
	u, bad := s.contact.trouble()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil && s.trouble != nil { // etcd refuses a lease
		u.Err, bad = s.trouble, true
	}
	if !bad {
		return nil
	}
	if u.Since.IsZero() {
		u.Since = u.LastAnswer
	}
	return u
}
