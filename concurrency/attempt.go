package concurrency

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// terms are what a primitive has its calls for a permit ask by.
type terms struct {
	agreement *agreement  // of the stored limits with this program's; nil if there is none to compare
	limit     int64       // this program's, to be stored if there is none
	rate      record.Rate // that the limit divides, for a share of a rate
	source    source      // of a call through a Limiter
	keeper    *keeper     // that may keep the permit, or nil
}

// maxTotal is KeyedLimiterOptions.MaxTotalWaiters, or 0.
func (t terms) maxTotal() int {
	if t.agreement == nil || t.agreement.total == nil {
		return 0
	}
	return t.agreement.total.waiters
}

// attempt is one call for a permit, and its state in one queue. With a total, a second attempt is its state
// in the queue of the total.
type attempt struct {
	queue *sessionQueue
	request
	terms
	caller context.Context // of the call, whose end is not that of its Wait
	begun  time.Time

	bid    *bid    // for whichever call is first in its line, or nil
	entry  *entry  // of a call for a permit of a KeyedLimiter
	round  int     // how often it has asked before
	former *ticket // its last one, if it asks again
}

// inTotal returns the attempt in the queue of the total, of a request that is admitted at its key.
func (a *attempt) inTotal() *attempt {
	t := *a
	t.queue, t.request = a.queue.pair.total, a.request.inTotal()
	if a.agreement != nil && a.agreement.total != nil {
		t.limit = a.agreement.total.limit
	}
	return &t
}

// acquire is every call for a permit. invalid is the error of one that is refused without a request to
// etcd, or nil. A permit that was kept is granted without one.
func (t terms) acquire(ctx context.Context, q *sessionQueue, r request, invalid error) (*Permit, error) {
	if q.sess.Hooks().On() {
		return t.observed(ctx, q, r, invalid)
	}
	if invalid != nil {
		return nil, invalid
	}
	return t.ask(ctx, q, r)
}

// observed is acquire as hooks see it. It reports the call and, if it is granted a permit, the beginning of
// the hold.
func (t terms) observed(ctx context.Context, q *sessionQueue, r request, invalid error) (p *Permit, err error) {
	hooks, begun := q.sess.Hooks(), time.Now()
	within, span := hooks.Start(ctx, q.call(observe.Acquire, r.weight, 0))
	defer span.Unwind(begun) // ctx may be of the caller's own kind
	if err = invalid; err == nil {
		p, err = t.ask(within, q, r)
	}
	o := observe.Outcome{Err: err, Took: time.Since(begun)}
	o.Result, o.Reason = endOfAsking(err, ctx.Err(), r.hasWait && r.wait > 0 && o.Took >= r.wait)
	if p != nil {
		o.Token = p.token
	}
	span.End(o)
	if p != nil {
		p.observe(ctx)
	}
	return p, err
}

// ask is acquire without hooks.
func (t terms) ask(ctx context.Context, q *sessionQueue, r request) (*Permit, error) {
	if !r.isPlain() {
		t.keeper = nil
	} else if t.keeper != nil {
		if p := t.keeper.takeFor(ctx, &r, t.source); p != nil {
			return p, nil
		}
	}
	a := &attempt{queue: q, request: r, terms: t, caller: ctx, begun: time.Now()}
	if t.agreement != nil && t.agreement.keys != nil {
		a.entry = &entry{t.agreement.keys, t.agreement.keys.admits()}
		defer a.entry.landed()
	}
	return a.run(ctx)
}

// run is the life of a call that asks etcd.
func (a *attempt) run(ctx context.Context) (*Permit, error) {
	q := a.queue
	if err := cmp.Or(q.invalid, ctx.Err()); err != nil {
		return nil, q.failed(a.doing, err)
	}
	bounded, cancel := a.bound(ctx)
	defer cancel()
	var p *Permit
	var err error
	if a.hands() {
		p, err = a.keeper.wait(bounded, a)
	} else {
		p, err = a.within(bounded)
	}
	if err == nil {
		return p, nil
	}
	return nil, a.errorOf(bounded, err)
}

// within is run until ctx ends.
func (a *attempt) within(ctx context.Context) (*Permit, error) {
	q := a.queue
	lease := q.sess.Lease()
	if err := a.enter(ctx); err != nil {
		return nil, err
	}
	var pause commit.Backoff
	for ; ; a.round++ {
		e, err := q.sess.Live(ctx)
		if err == nil {
			// A call that has met an outage asks in turn with all those that have lost their
			// requests by it.
			if e.Lease() != lease {
				a.round = max(a.round, 1)
			}
			var p *Permit
			if p, err = a.on(ctx, e); err == nil {
				return p, nil
			}
		}
		switch {
		case errors.Is(err, engine.ErrEpoch):
		case errors.Is(err, errAnew):
			if err := pause.Wait(ctx, nil); err != nil {
				if context.Cause(ctx) == errWaited {
					err = q.unknown()
				}
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// enter does what comes before anything is written: it counts the keys of a limiter, and compares the
// request and the stored limits with this program's.
func (a *attempt) enter(ctx context.Context) error {
	q := a.queue
	if a.entry != nil && !a.entry.admitted {
		if err := q.sess.Do(ctx, func(ctx context.Context) error { return a.entry.enter(ctx, q, a.begun) }); err != nil {
			return err
		}
	}
	if a.agreement == nil || a.agreement.agreed() && a.weight == 1 {
		return nil
	}
	leave, err := q.turn(ctx, &q.sess.Sending, a.begun)
	if err != nil {
		return err
	}
	defer leave()
	return q.sess.Do(ctx, a.check)
}

// check compares the request with the limit before anything is written. The first call compares the stored
// limit with this program's.
func (a *attempt) check(ctx context.Context) error {
	for own := a.agreement; own != nil; own = own.total {
		if own.checked.Load() {
			continue
		}
		if err := own.check(ctx, a.weight); err != nil {
			return err
		}
		own.checked.Store(true)
	}
	q := a.queue
	if seen := q.Limit.Seen(); a.weight > 1 && (seen == nil || rank.TooHeavy(a.weight, seen.N)) {
		// It may have been raised since this process last saw it.
		stored, known, err := q.Limit.Read(ctx)
		if err != nil {
			return err
		}
		if known && rank.TooHeavy(a.weight, stored.N) {
			return tooHeavy(q.level(), a.weight, stored.N)
		}
	}
	return nil
}

// on asks on one lease. engine.ErrEpoch and errAnew mean: ask again. When it fails, the request is gone,
// is being removed in the background, or goes with a lost lease.
func (a *attempt) on(bounded context.Context, e *engine.Epoch) (_ *Permit, err error) {
	q := a.queue
	ctx, cancel := context.WithCancelCause(bounded)
	defer cancel(nil)
	defer context.AfterFunc(e.Accepting(), func() { cancel(context.Cause(e.Accepting())) })()

	first, last, err := a.admitted(ctx, cancel, e)
	if err != nil {
		a.former = cmp.Or(first, a.former)
		if asked, ok := context.Cause(ctx).(*LostError); ok { //nolint:errorlint // its own
			err = asked
		}
		if context.Cause(ctx) != errWaited {
			err = cmp.Or(e.Refuses(a.caller), err)
		}
		return nil, err
	}
	// An answer that comes after the lease's deadline is no permit.
	p := newPermit(ctx, e, q, last)
	if err := p.register(); err != nil {
		a.former = first
		p.workEnded()
		e.Withdraw(first.Ticket, first.refusal())
		return nil, err
	}
	return p, nil
}

// admitted returns when the request is admitted: the first one, and, with a total, that there.
func (a *attempt) admitted(ctx context.Context, cancel context.CancelCauseFunc, e *engine.Epoch) (first, last *ticket, err error) {
	q := a.queue
	leave := func() {}
	if a.round > 0 {
		if leave, err = q.turn(ctx, &q.sess.Requeue, a.begun); err != nil {
			return nil, nil, err
		}
		if a.former != nil && a.former.Also != nil {
			// Its ID is in the way. It was that of a waiter, so it protects no work.
			_, _ = q.sess.Remove(ctx, a.former.Stored)
		}
	}
	came := func() {}
	if !a.bounded || a.maxWaiters > 0 { // it may be before all that wait; a try is written only where it waits for others' tries at most
		came = q.crowd.Comes()
	}
	defer came()
	j := a.joins(e)
	first, admitted, err := j.join(ctx)
	leave()
	a.entry.landed()
	if err != nil {
		return first, nil, err
	}
	if !admitted || q.pair != nil {
		defer e.WhileWaiting(first.Ticket, func(n record.Notice) { cancel(first.ending(ErrEvicted, noticeReason(n))) })()
	}
	if !admitted && first.next == nil {
		first.came = came
		if a.bid != nil {
			a.bid.before.Store(first.fullFound())
		}
		err = first.await(ctx, e, a.begun)
	}
	came()
	if err != nil || q.pair == nil {
		return first, first, err
	}
	last, err = q.pair.join(ctx, j, first, a.begun)
	return first, last, err
}
