package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// joinBounded writes a request only if not too many others are before it: for a try that
// is not admitted at once, none.
//
// A request that is written first and withdrawn when it turns out to be too late would make
// others fail although the permit is free. So the queue is read first, which costs no Raft
// entry if the answer is no, and the request is written on the condition that no other was
// created since: then what was read is still true, or the queue got shorter. Where others keep
// coming, it is written without the condition after a few rounds, and the queue is read again.
// Then its name marks it as a try, so that no other call is refused at once because of it.
func (j *joining) joinBounded(ctx context.Context) (*Ticket, bool, error) {
	q := j.Queue
	var pause commit.Backoff
	begun := time.Now()
	reserved, err := j.awaitRoom(ctx, nil, glance)
	if err != nil {
		return nil, false, err
	}
	for round := 0; !reserved; round++ {
		o, err := j.lookOnce(ctx, round, &begun)
		if err != nil {
			return nil, false, err
		}
		p := prospect{answer: o.answer, round: round, free: o.free, weight: j.Weight, counted: o.counted, contended: j.contends()}
		full, made, err := j.weigh(ctx, &p, o, &begun)
		if err != nil {
			return nil, false, err
		}
		if made {
			continue
		}
		next := p.next()
		for next == writeIf || next == writeAnyway {
			c, admitted, err := j.enter(ctx, o, next)
			ours := asOurs(err)
			switch {
			case errors.Is(err, errRefused):
				p.overtaken = true
				q.contention.begins()
				p.contended = j.contends()
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
		if reserved, err = j.awaitRoom(ctx, &pause, patience-p.waited); err != nil {
			if context.Cause(ctx) == ErrWaited {
				return nil, false, full
			}
			return nil, false, err
		}
	}
	return j.joinReserved(ctx)
}

// weigh completes a prospect by what the ID of the request and the total show. It returns the error of a
// call that does not join; made is set if there is room since the look.
func (j *joining) weigh(ctx context.Context, p *prospect, o outlook, begun *time.Time) (full error, made bool, failed error) {
	full = o.full
	if p.answer != rank.Enter && j.ID != "" {
		made, err := j.makeRoom(ctx, o.view)
		switch ours := asOurs(err); {
		case ours != nil:
			p.ours, full = true, ours.held
		case err != nil || made:
			return nil, made, err
		}
	}
	p.waited = time.Since(*begun)
	full, failed = j.lookAhead(ctx, p, full, begun)
	return full, false, failed
}

// enter writes a request that may join as far as a look shows.
func (j *joining) enter(ctx context.Context, o outlook, how step) (*Ticket, bool, error) {
	if how == writeAnyway {
		return j.enqueueAnyway(ctx, o.counted)
	}
	c, admitted, err := j.enqueue(ctx, false, j.Queue.Unchanged(o.revision, o.limits))
	if err == nil && o.fits {
		c.at, c.open, c.atOnce, admitted = o.limits, true, true, true
	}
	return c, admitted, err
}

// makeRoom looks at the ID of a request for which a queue is too full. The ID decides
// before the queue does: the error names its owner, or the owner is evicted if that helps.
func (j *joining) makeRoom(ctx context.Context, v *mirror.View) (made bool, err error) {
	owner, live, err := Owners{j.Queue}.ofID(ctx, j.ID)
	if err != nil || !live {
		return false, err
	}
	if j.TakeOver && !j.epoch.Ended(owner.Slot.Lease, owner.Key) {
		if rest := v.Without(owner.Key, owner.Create); rest.Bounded(0, j.Weight, j.MaxWaiters) == rank.Refuse {
			return false, j.Queue.fullView(*v, 0)
		}
	}
	err = j.freeID(ctx, owner)
	return err == nil, err
}

// lookOnce is look in the turn of the call, or what was seen before, if that is still new.
func (j *joining) lookOnce(ctx context.Context, round int, begun *time.Time) (outlook, error) {
	leave, err := j.Queue.Turn(ctx, &j.Queue.sess.Sending, *begun)
	if err != nil {
		return outlook{}, err
	}
	defer leave()
	if round == 0 {
		*begun = time.Now() // patience is for others, not for its turn
		if seen := j.seen; seen != nil {
			j.seen, j.shown = nil, seen.full // it may be large
			return *seen, nil
		}
	}
	o, err := j.look(ctx)
	if err == nil {
		j.shown = o.full
	}
	return o, err
}

// lookAhead looks at the total for a try that is about to be written at its key. If the total refuses it, or
// that is not clear yet, p has that answer, so that nothing is written, and it returns how full the total is in
// place of how full the key is. If a live request has the ID of the try, that decides before the total does, as in makeRoom: it
// may be what the total is full of, and what is written finds its owner.
func (j *joining) lookAhead(ctx context.Context, p *prospect, key error, begun *time.Time) (full, failed error) {
	if next := p.next(); j.Queue.pair == nil || j.MaxWaiters > 0 || next != writeIf && next != writeAnyway {
		return key, nil
	}
	came := time.Now()
	leave, err := j.Queue.Turn(ctx, &j.Queue.sess.Sending, *begun)
	if err != nil {
		return nil, err
	}
	*begun = begun.Add(time.Since(came)) // patience is for others, not for its turn
	o, err := j.inTotal(nil).look(ctx)
	leave()
	if err != nil {
		return nil, err
	}
	if o.answer == rank.Enter {
		j.ahead = &o
		return key, nil
	}
	if j.ID != "" {
		_, live, err := Owners{j.Queue}.ofID(ctx, j.ID)
		if live || err != nil {
			return nil, err
		}
	}
	p.answer = o.answer
	return o.full, nil
}

// enqueueAnyway writes the request first and then looks whether it may stay. If counted is set, the
// counts of its own Txn show that.
func (j *joining) enqueueAnyway(ctx context.Context, counted bool) (*Ticket, bool, error) {
	q, e := j.Queue, j.epoch
	removed := j.removals.from(q)
	c, admitted, err := j.enqueue(ctx, !counted, nil)
	if err != nil || admitted {
		return c, admitted, err
	}
	full, ok := c.behind()
	if ok {
		j.shown = full
	}
	if ok && !full.without(0, j.MaxWaiters) { // whatever it is that the counts show
		return c, false, nil
	}
	answer, v, err := j.answer(ctx, c, counted && ok, removed)
	if err != nil {
		c.Withdraw(e)
		return nil, false, err
	}
	switch answer {
	case rank.Refuse:
		c.Withdraw(e)
		return nil, false, j.shown
	case rank.Unclear:
		wait, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
		defer cancel()
		switch err := c.await(wait, e, time.Now()); {
		case err == nil:
			return c, true, nil
		case !errors.Is(err, errPatience):
			return nil, false, err
		}
		if v, err = q.readInTurn(ctx, j.Begun); err == nil && v.Queue.Bounded(c.Token, j.Weight, j.MaxWaiters) != rank.Enter {
			err = q.fullView(v, c.Token)
		}
		if err != nil {
			c.Withdraw(e)
			return nil, false, err
		}
	}
	c.at, c.open = limit.RevsOf(v.Limits), v.Limit > 0
	return c, v.Queue.Bounded(c.Token, j.Weight, 0) == rank.Enter, nil
}

// answer says whether a request that was written may stay, by the counts of its own Txn or by the queue, which it returns then.
func (j *joining) answer(ctx context.Context, c *Ticket, counted bool, removed []engine.Leaving) (rank.Answer, mirror.View, error) {
	q := j.Queue
	if counted {
		refused, err := q.tooFull(ctx, j.shown, removed, j.MaxWaiters, c.Token)
		if refused {
			return rank.Refuse, mirror.View{}, err
		}
		return rank.Unclear, mirror.View{}, err
	}
	v, err := q.readInTurn(ctx, j.Begun)
	if err != nil {
		return rank.Refuse, v, err
	}
	j.shown = q.fullView(v, c.Token)
	j.count(&v, removed)
	return v.Queue.Bounded(c.Token, j.Weight, j.MaxWaiters), v, nil
}
