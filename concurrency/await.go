package concurrency

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// await waits until the request is admitted.
func (q *sessionQueue) await(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time) error {
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	defer q.sess.Etcd().Await()()
	s, leave := q.wait(c)
	defer leave()
	for {
		way, moved := q.waiters.now()
		var err error
		switch way {
		case asleep:
			err = q.sleep(ctx, e, s, begun, moved)
		case front:
			err = q.follow(ctx, e, c, begun, q.front.Join(), moved)
		default:
			if err = q.follow(ctx, e, c, begun, q.view.Join(), moved); err == errMoved { //nolint:errorlint // its own
				q.view.Rest() // those that sleep do not come back to it
			}
		}
		if err != errMoved { //nolint:errorlint // its own
			return err
		}
	}
}

// follow waits until the mirror shows the request as admitted, or moved is closed: then it returns
// errMoved.
func (q *sessionQueue) follow(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time, m *mirror.Use, moved <-chan struct{}) error {
	defer m.Leave()
	w := m.Wait(c.Key, c.Token, c.slot.Weight, c.found)
	reports := q.reports(ctx, m.Mirror, c, begun)
	defer func() { reports() }()
	var pause commit.Backoff
	for {
		select {
		case outcome := <-w.Outcome():
			switch outcome {
			case mirror.Admitted:
				c.at, c.open = limit.RevsOf(w.Limits()), w.Limits().InForce().Limit.Limit > 0
				if sure, err := q.confirm(ctx, c, w); sure {
					return nil
				} else if err != nil && ctx.Err() == nil {
					e.Withdraw(c.Ticket, q.refusal(c))
					return err
				}
				q.listAgain(m.Mirror, w)
				_ = pause.Wait(ctx, nil) // the view is out of date, or ctx has ended
				w = m.Wait(c.Key, c.Token, c.slot.Weight, c.found)
				continue
			case mirror.Gone:
				return q.keyGone(ctx, e, c, begun)
			case mirror.TooHeavy:
				e.Withdraw(c.Ticket, q.refusal(c))
				b, _ := m.Brief(c.Key, c.Token, 0)
				return tooHeavy(q.level(), c.slot.Weight, b.Limit)
			case mirror.Damaged:
				e.Withdraw(c.Ticket, q.refusal(c))
				return limit.ErrUnreadable
			}
			// The limit is not set: it was deleted.
			_, err := q.limit.InitRate(ctx, c.attempt.limit, c.attempt.rate)
			if err == nil {
				q.listAgain(m.Mirror, w)
				err = pause.Wait(ctx, nil)
			}
			if err != nil && ctx.Err() == nil {
				e.Withdraw(c.Ticket, q.refusal(c))
				return err
			}
			w = m.Wait(c.Key, c.Token, c.slot.Weight, c.found)
		case <-moved:
			if m.Forget(w) {
				return errMoved
			}
			moved = nil // its outcome has come
		case <-m.Replaced:
			reports()
			m.Next()
			w = m.Wait(c.Key, c.Token, c.slot.Weight, c.found)
			reports = q.reports(ctx, m.Mirror, c, begun)
		case <-ctx.Done():
			m.Forget(w)
			e.Withdraw(c.Ticket, q.refusal(c))
			return &waitEnd{q.fullMirror(m.Mirror, c)}
		}
	}
}

// listAgain has a view listed again whose limit may be out of date, if nothing else brings the limit to it.
func (q *sessionQueue) listAgain(m *mirror.Mirror, w *mirror.Waiter) {
	if w.Suggested() && q.base == nil {
		m.ListAgain()
	}
}

// keyGone returns why a waiting request's key is gone.
func (q *sessionQueue) keyGone(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time) error {
	defer q.gone(e, c) // not before: a notice that comes then is not kept
	return q.whyGone(ctx, e, c, begun)
}
