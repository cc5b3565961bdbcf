package concurrency

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/observe"
)

// await waits until the request is admitted. If it fails, the request is gone, or is being removed.
func (q *sessionQueue) await(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time) error {
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
		defer q.gone(e, c) // not before: a notice that comes then is not kept
		return q.whyGone(ctx, e, c, begun)
	}
	e.Withdraw(c.Ticket, q.refusal(c))
	switch r.End {
	case crowd.TooHeavy:
		return tooHeavy(q.level(), c.slot.Weight, r.Seen.Limit)
	case crowd.Ended:
		return &waitEnd{q.fullBrief(r.Seen, c)}
	}
	return r.Err
}

// waiting is the call of a request that waits, a crowd.Caller.
type waiting struct {
	epoch  *engine.Epoch
	ticket *ticket
	begun  time.Time
}

func (w *waiting) Noticed() <-chan struct{} { return w.epoch.Noticed(w.ticket.Ticket) }

func (w *waiting) Restore(ctx context.Context) error {
	_, err := w.ticket.queue.limit.InitRate(ctx, w.ticket.attempt.limit, w.ticket.attempt.rate)
	return err
}

func (w *waiting) Follows(ctx context.Context, m *mirror.Mirror) (stop func()) {
	return w.ticket.queue.reports(ctx, m, w.ticket, w.begun)
}

func (w *waiting) Sleeps(ctx context.Context) {
	c := w.ticket
	c.queue.waits(ctx, c, observe.Waiting{Waited: time.Since(w.begun), Limit: int(limit.SeenN(c.queue.limit)), Ahead: c.found.Ahead})
}
