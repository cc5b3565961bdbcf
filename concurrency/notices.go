package concurrency

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// whyGone returns why a waiting request's key is gone.
func (q *sessionQueue) whyGone(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time) error {
	if n := e.Notice(c.Ticket); n != nil {
		return c.noticeError(n)
	}
	// If all requests of a lease have gone, the first few calls find that out.
	leave, err := q.turn(ctx, &q.sess.Asking, begun)
	if err != nil {
		return err
	}
	defer leave()
	if !e.Valid() {
		return engine.ErrEpoch
	}
	if n, _ := e.FindNotice(ctx, c.Ticket); n != nil {
		return c.noticeError(n)
	}
	return errAnew // deleted by hand, or with the lease, whose loss the session is about to notice
}

// noticeError returns the end of a request or its permit by a notice.
func (c *ticket) noticeError(n *record.Notice) *LostError {
	if n.Cause == record.CauseReleased {
		return c.ending(ErrReleased, noticeReason(*n))
	}
	return c.ending(ErrEvicted, noticeReason(*n))
}

// ending returns the end of a request or its permit. One in the queue of a total has the name of its
// key, as the permit has in all other reports.
func (c *ticket) ending(cause error, reason string) *LostError {
	named := c.queue
	if of := c.attempt.of; of != nil {
		named = of.queue
	}
	return &LostError{Name: named.name, Token: c.Token, Cause: cause, Reason: reason}
}

// noticeReason returns the holder that has left a notice, and its reason.
func noticeReason(n record.Notice) string {
	switch {
	case n.By == "":
		return n.Reason
	case n.Reason == "":
		return "by " + n.By
	}
	return "by " + n.By + ": " + n.Reason
}
