package concurrency

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// enqueueBounded writes a request only if not too many others are before it: for a try that
// is not admitted at once, none.
//
// A request that is written first and withdrawn when it turns out to be too late would make
// others fail although the permit is free. So the queue is read first, which costs no Raft
// entry if the answer is no, and the request is written on the condition that no other was
// created since: then what was read is still true, or the queue got shorter. Where others keep
// coming, it is written without the condition after a few rounds, and the queue is read again.
// Then its name marks it as a try, so that no other call is refused at once because of it.
func (q *sessionQueue) enqueueBounded(ctx context.Context, e *engine.Epoch, a *attempt) (*ticket, bool, error) {
	var pause commit.Backoff
	begun := time.Now()
	for round := 0; ; round++ {
		leave, err := q.turn(ctx, &q.sess.Sending, begun)
		if err != nil {
			return nil, false, err
		}
		if round == 0 {
			begun = time.Now() // patience is for others, not for its turn
		}
		o, err := q.lookOnce(ctx, e, a, round)
		if leave(); err != nil {
			return nil, false, err
		}
		p, full := prospect{answer: o.answer, round: round, free: o.free, weight: a.weight, counted: o.counted}, error(o.full)
		if p.answer != queue.Enter && a.hasID {
			made, err := q.makeRoom(ctx, e, a, o.view)
			switch ours := asOurs(err); {
			case ours != nil:
				p.ours, full = true, ours.held
			case err != nil:
				return nil, false, err
			case made:
				continue
			}
		}
		p.waited = time.Since(begun)
		if full, err = q.lookAhead(ctx, e, a, &p, full); err != nil {
			return nil, false, err
		}
		next := p.next()
		for next == writeIf || next == writeAnyway {
			c, admitted, err := q.enter(ctx, e, a, o, next)
			ours := asOurs(err)
			switch {
			case errors.Is(err, errRefused):
				p.overtaken = true
			case ours != nil:
				p.ours, full = true, ours.held
			default:
				return c, admitted, err
			}
			p.waited = time.Since(begun)
			next = p.next()
		}
		switch next {
		case again:
			continue
		case fail:
			return nil, false, full
		}
		if err := pause.Wait(ctx, nil); err != nil {
			if context.Cause(ctx) == errWaited {
				return nil, false, full
			}
			return nil, false, err
		}
	}
}

// enter writes a request that may join as far as a look shows.
func (q *sessionQueue) enter(ctx context.Context, e *engine.Epoch, a *attempt, o outlook, how step) (*ticket, bool, error) {
	if how == writeAnyway {
		return q.enqueueAnyway(ctx, e, a, o.counted)
	}
	c, admitted, err := q.enqueue(ctx, e, a, false, q.unchanged(o))
	if err == nil && o.fits {
		c.at, c.open, c.atOnce, admitted = o.limits, true, true, true
	}
	return c, admitted, err
}

// makeRoom looks at the ID of a request for which a queue is too full. The ID decides
// before the queue does: the error names its owner, or the owner is evicted if that helps.
func (q *sessionQueue) makeRoom(ctx context.Context, e *engine.Epoch, a *attempt, v *mirror.View) (made bool, err error) {
	owner, live, err := q.ownerOf(ctx, a.id)
	if err != nil || !live {
		return false, err
	}
	if a.takeOver && !e.Ended(owner.Slot.Lease, owner.Key) {
		if rest := v.Without(owner.Key, owner.Create); rest.Bounded(0, a.weight, a.maxWaiters) == queue.Refuse {
			return false, q.fullView(*v, 0)
		}
	}
	err = q.freeID(ctx, e, a, owner)
	return err == nil, err
}

// unchanged is the condition that no request has come and the limit is the same
// since a look.
func (q *sessionQueue) unchanged(o outlook) []clientv3.Cmp {
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(q.keys.Requests), "<", o.revision+1).WithPrefix()}
	return append(cmps, q.limit.Unchanged(o.limits)...)
}

// lookOnce is look, or what lookAhead has seen before the request at the key was written.
func (q *sessionQueue) lookOnce(ctx context.Context, e *engine.Epoch, a *attempt, round int) (outlook, error) {
	if a.of != nil && a.ahead != nil && round == 0 {
		return *a.ahead, nil
	}
	return q.look(ctx, e, a)
}

// lookAhead looks at the total for a try that is about to be written at its key. If the total refuses it, or
// that is not clear yet, p has that answer, so that nothing is written, and it returns how full the total is in
// place of how full the key is. If a live request has the ID of the try, that decides before the total does, as in makeRoom: it
// may be what the total is full of, and what is written finds its owner.
func (q *sessionQueue) lookAhead(ctx context.Context, e *engine.Epoch, a *attempt, p *prospect, key error) (full, failed error) {
	if next := p.next(); q.total == nil || a.maxWaiters > 0 || next != writeIf && next != writeAnyway {
		return key, nil
	}
	o, err := q.total.look(ctx, e, a.inTotal(nil))
	if err != nil {
		return nil, err
	}
	if o.answer == queue.Enter {
		a.ahead = &o
		return key, nil
	}
	if a.hasID {
		if _, live, err := q.ownerOf(ctx, a.id); live || err != nil {
			return nil, err
		}
	}
	p.answer = o.answer
	return o.full, nil
}

// enqueueAnyway writes the request first and then looks whether it may stay. If counted is set, the
// counts of its own Txn show that.
func (q *sessionQueue) enqueueAnyway(ctx context.Context, e *engine.Epoch, a *attempt, counted bool) (*ticket, bool, error) {
	leaving := e.Leaving(q.numbered())
	c, admitted, err := q.enqueue(ctx, e, a, !counted, nil)
	if err != nil || admitted {
		return c, admitted, err
	}
	if full, ok := q.behind(c); counted && ok && full.without(len(leaving), a.maxWaiters) {
		e.Withdraw(c.Ticket, q.refusal(c))
		return nil, false, full
	}
	v, err := q.read(ctx)
	if err != nil {
		e.Withdraw(c.Ticket, q.refusal(c))
		return nil, false, err
	}
	q.keep(e, &v, leaving)
	switch v.Queue.Bounded(c.Token, a.weight, a.maxWaiters) {
	case queue.Refuse:
		e.Withdraw(c.Ticket, q.refusal(c))
		return nil, false, q.fullView(v, c.Token)
	case queue.Unclear:
		wait, cancel := context.WithTimeoutCause(ctx, patience, errWaited)
		defer cancel()
		err := q.await(wait, e, c, time.Now())
		if err != nil {
			return nil, false, err
		}
		return c, true, nil
	}
	c.at, c.open = limit.RevsOf(v.Limits), v.Limit > 0
	return c, v.Queue.Bounded(c.Token, a.weight, 0) == queue.Enter, nil
}
