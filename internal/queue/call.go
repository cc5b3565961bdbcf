package queue

import (
	"cmp"
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Request is what one call asks for. Nothing changes it once it was checked.
type Request struct {
	Weight     int64
	ID         string // or empty
	Note       string
	MaxHold    time.Duration // to be stored with the request, or 0
	Bounded    bool          // it joins behind MaxWaiters others at most, or is admitted at once
	MaxWaiters int
	TakeOver   bool // a live request with the ID is evicted
}

// inTotal returns what the call asks for in the queue of a total, once its request is admitted at its key:
// the others wait at their keys, not before this request.
func (r Request) inTotal() Request {
	r.ID, r.TakeOver = "", false
	r.Bounded = r.Bounded && r.MaxWaiters == 0
	return r
}

// Terms are what the primitive of a call adds to its request.
type Terms struct {
	Limit           int64       // to be stored if there is none
	Rate            record.Rate // that the limit divides, for a share of a rate
	Total           int64       // to be stored as the limit of the total if there is none
	MaxTotalWaiters int         // how many others may wait for the total before the request, or 0
}

// Caller is what a call of a queue is part of.
type Caller interface {
	// Landed is called when the request was written for the first time, or has failed. It may be called again.
	Landed()
	// Waits is called when the request begins to wait, with what is before it.
	Waits(before *Full)
	// Follows reports, until stop is called, why a request waits since then, by what a view shows.
	Follows(ctx context.Context, t *Ticket, since time.Time, m *mirror.Mirror) (stop func())
	// Sleeps reports once why a request waits since then, which sleeps.
	Sleeps(ctx context.Context, t *Ticket, since time.Time)
}

// Call is one call for a permit, and its state in one queue. In the queue of a total it has a second one, made
// from the first.
type Call struct {
	Queue *Queue
	Request
	Terms
	Caller Caller
	Ctx    context.Context // the caller's, whose end is not that of its Wait
	Begun  time.Time
	Round  int // how often it has asked before

	former *Ticket // its last one, if it asks again
	shown  *Full   // how full the queue was when it was counted for this call last; nil if it was not
}

// inTotal returns the call in the queue of the total, for a request that is admitted at its key.
func (c *Call) inTotal() *Call {
	t := *c
	t.Queue, t.Request, t.Limit, t.shown = c.Queue.pair.total, c.Request.inTotal(), c.Total, nil
	return &t
}

// Admit asks on one lease, and returns when the request is admitted: the first one, and the last one, by which the
// permit is held, which is that in the total if there is one. engine.ErrEpoch and ErrAnew mean: ask again. When it
// fails, the request is gone, is being removed in the background, or goes with a lost lease.
func (c *Call) Admit(timed context.Context, e *engine.Epoch) (first, last *Ticket, err error) {
	ctx, cancel := context.WithCancelCause(timed)
	defer cancel(nil)
	accepts := e.Accepts(c.Ctx)
	defer context.AfterFunc(accepts, func() { cancel(context.Cause(accepts)) })()
	first, last, err = c.admitted(ctx, cancel, e)
	c.former = cmp.Or(first, c.former)
	if err == nil {
		return first, last, nil
	}
	if asked, ok := context.Cause(ctx).(*Noticed); ok { //nolint:errorlint // its own
		err = asked
	}
	if context.Cause(ctx) != ErrWaited {
		err = cmp.Or(e.Refuses(c.Ctx), err)
	}
	return nil, nil, c.Ended(ctx, err)
}

func (c *Call) admitted(ctx context.Context, cancel context.CancelCauseFunc, e *engine.Epoch) (first, last *Ticket, err error) {
	q := c.Queue
	leave := func() {}
	if c.Round > 0 {
		if leave, err = q.Turn(ctx, &q.sess.Requeue, c.Begun); err != nil {
			return nil, nil, err
		}
		if c.former != nil && c.former.Also != nil {
			// Its ID is in the way. It was that of a waiter, so it protects no work.
			_, _ = q.sess.Remove(ctx, c.former.Stored)
		}
	}
	came := func() {}
	if !c.Bounded || c.MaxWaiters > 0 { // it may be before all that wait; a try is written only where it waits for others' tries at most
		came = q.Crowd.Comes()
	}
	defer came()
	j := c.joins(e)
	first, admitted, err := j.join(ctx)
	leave()
	c.Caller.Landed()
	if err != nil {
		return first, nil, err
	}
	if !admitted || q.pair != nil {
		defer e.WhileWaiting(first.Ticket, func(n record.Notice) { cancel(&Noticed{first.Token, n}) })()
	}
	if !admitted && first.next == nil {
		first.came = came
		c.Caller.Waits(first.fullFound())
		err = first.await(ctx, e, c.Begun)
	}
	came()
	if err != nil || q.pair == nil {
		return first, first, err
	}
	last, err = q.pair.join(ctx, j, first, c.Begun)
	return first, last, err
}
