package concurrency

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// whyGone returns why a waiting request's key is gone.
func (q *sessionQueue) whyGone(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time) error {
	if n, ok := e.Notice(c.Ticket); ok {
		return noticeError(q.name, c.Token, n)
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
	if n, ok, _ := e.FindNotice(ctx, c.Ticket); ok {
		return noticeError(q.name, c.Token, n)
	}
	return errAnew // deleted by hand, or with the lease, whose loss the session is about to notice
}

// noticeError turns a notice into an error.
func noticeError(name string, token int64, n record.Notice) *LostError {
	err := &LostError{Name: name, Token: token, Cause: ErrEvicted, Reason: noticeReason(n)}
	if n.Cause == record.CauseReleased {
		err.Cause = ErrReleased
	}
	return err
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
