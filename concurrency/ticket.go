package concurrency

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// ticket is one request that this session has written, or is about to, in one queue.
type ticket struct {
	*engine.Ticket // the whole request, in all queues
	queue          *sessionQueue
	named          *sessionQueue // by whose name its end is known: that of its key
	attempt        *attempt      // of the call, in this queue
	slot           keyspace.Slot
	Key            string // in this queue
	Token          int64
	found          mirror.Found
	strays         []mirror.Stray // those that its Txn reads
	at             limit.Revs     // of the limit by which it was last compared
	open           bool           // the limit there is above 0
	atOnce         bool           // its own Txn admits it
	nonce          string         // of its value, and of that in the total's queue
	came           func()         // is called when it waits
	next           *nextTicket    // that in the total's queue, if one Txn has written both
}

// await waits until the request is admitted. If it fails, the request is gone, or is being removed.
func (c *ticket) await(ctx context.Context, e *engine.Epoch, begun time.Time) error {
	q := c.queue
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	defer q.sess.Etcd().Await()()
	s, leave := q.crowd.Enter(crowd.Request{
		Key: c.Key, Token: c.Token, Weight: c.slot.Weight, Try: c.slot.Try, Found: c.found, Caller: &waiting{e, c, begun},
	})
	defer leave()
	if c.came != nil {
		c.came()
	}
	r := q.crowd.Await(ctx, s)
	switch r.End {
	case crowd.Admitted:
		c.at, c.open = limit.RevsOf(r.Limits), r.Limits.InForce().Limit.Limit > 0
		return nil
	case crowd.Gone:
		defer c.gone(e) // not before: a notice that comes then is not kept
		return c.whyGone(ctx, e, begun)
	}
	e.Withdraw(c.Ticket, c.refusal())
	switch r.End {
	case crowd.TooHeavy:
		return tooHeavy(q.level(), c.slot.Weight, r.Seen.Limit)
	case crowd.Ended:
		return &waitEnd{c.fullBrief(r.Seen)}
	}
	return r.Err
}

// whyGone returns why a waiting request's key is gone.
func (c *ticket) whyGone(ctx context.Context, e *engine.Epoch, begun time.Time) error {
	if n := e.Notice(c.Ticket); n != nil {
		return c.noticeError(n)
	}
	// If all requests of a lease have gone, the first few calls find that out.
	leave, err := c.queue.turn(ctx, &c.queue.sess.Asking, begun)
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
	return &LostError{Name: c.named.name, Token: c.Token, Cause: cause, Reason: reason}
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

// gone frees the slot of a request whose key is gone in one queue, or removes what is left of it in the other.
func (c *ticket) gone(e *engine.Epoch) {
	if c.named != c.queue { // its key's request may exist
		e.Withdraw(c.Ticket, c.refusal())
		return
	}
	e.Free(c.Ticket)
}

// refusal returns what logs that etcd refuses to delete the request.
func (c *ticket) refusal() func(error) {
	q := c.queue
	return func(err error) {
		q.sess.Log().Warn("etcd refuses to delete the key of a request that has ended; the session repeats it until its lease ends",
			zap.String("name", q.name), zap.Int64("token", c.Token), zap.Error(q.sess.Explain(err)))
	}
}
