package concurrency

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/entry"
	"github.com/etcdkit/etcdkit/internal/keep"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// terms are what a primitive has its calls for a permit ask by.
type terms struct {
	agreement *entry.Agreement // of the stored limits with this program's; nil if there is none to compare
	limit     int64            // this program's, to be stored if there is none
	rate      record.Rate      // that the limit divides, for a share of a rate
	source    source           // of a call through a Limiter
	keeper    *keep.Keeper     // that may keep the permit, or nil
}

// attempt is one call for a permit.
type attempt struct {
	reporter
	request
	terms
	caller context.Context // of the call, whose end is not that of its Wait
	begun  time.Time
	behind int64 // the token of a permit of its own context, for which it waits, or 0
}

// call returns the attempt as a call of its queue.
func (a *attempt) call() *queue.Call {
	c := &queue.Call{
		Queue: a.queue.Queue, Request: a.Request, Terms: queue.Terms{Limit: a.limit, Rate: a.rate}, Caller: &a.reporter, Ctx: a.caller, Begun: a.begun,
	}
	if a.keeper != nil { // a kept request serves several calls, each with a bound of its own
		c.MaxHold = 0
	}
	if a.agreement != nil && a.agreement.Total != nil {
		c.Total, c.MaxTotalWaiters = a.agreement.Total.Limit, a.agreement.Total.MaxWaiters
	}
	return c
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
	within, span := hooks.Start(ctx, q.call(observe.Acquire, r.Weight, 0))
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
		if p := t.take(ctx, q, &r); p != nil {
			return p, nil
		}
		if q.sess.Accepting().Err() != nil {
			t.keeper = nil // while Close waits, nothing is kept or passed on
		}
	}
	a := &attempt{reporter: reporter{queue: q, entry: t.agreement.Begin()}, request: r, terms: t, caller: ctx, begun: time.Now()}
	defer a.entry.Landed()
	return a.run(ctx)
}

// run is the life of a call that asks etcd.
func (a *attempt) run(ctx context.Context) (*Permit, error) {
	q := a.queue
	if err := cmp.Or(q.invalid, ctx.Err()); err != nil {
		return nil, q.failed(a.doing, err)
	}
	if a.source == nil {
		a.behind = findBehind(ctx, a.queue, &a.request)
	}
	timed, cancel := a.bound(ctx)
	defer cancel()
	ask := a.onLeases
	if a.isLocal() {
		ask = a.waitLocally
	}
	p, err := ask(timed)
	if a.isLocal() && err != nil && timed.Err() == nil && q.sess.Accepting().Err() != nil && !engine.Refuses(ctx, q.sess) {
		a.keeper = nil // Close has ended the local queue, and waits for the work of which the call is a part
		p, err = a.onLeases(timed)
	}
	if err == nil {
		return p, nil
	}
	return nil, a.errorOf(timed, err)
}

// onLeases asks on one lease after the other, until ctx ends.
func (a *attempt) onLeases(ctx context.Context) (*Permit, error) {
	q := a.queue
	lease := q.sess.Lease()
	if err := a.entry.Enter(ctx, q.Queue, a.Weight, a.begun); err != nil {
		return nil, err
	}
	var pause commit.Backoff
	for call := a.call(); ; call.Round++ {
		e, err := q.sess.Live(ctx)
		if err == nil {
			// A call that has met an outage asks in turn with all those that have lost their
			// requests by it.
			if e.Lease() != lease {
				call.Round = max(call.Round, 1)
			}
			var p *Permit
			if p, err = a.onLease(ctx, call, e); err == nil {
				return p, nil
			}
		}
		switch {
		case errors.Is(err, engine.ErrEpoch):
		case errors.Is(err, queue.ErrAnew):
			if err := pause.Wait(ctx, nil); err != nil {
				return nil, call.Ended(ctx, err)
			}
		default:
			return nil, err
		}
	}
}

// onLease asks on one lease, and has the permit end with it: see queue.Call.Admit.
func (a *attempt) onLease(ctx context.Context, call *queue.Call, e *engine.Epoch) (*Permit, error) {
	first, last, err := call.Admit(ctx, e)
	if err != nil {
		return nil, err
	}
	// An answer that comes after the lease's deadline is no permit.
	p := a.granted(ctx, e, last)
	if err := p.register(); err != nil {
		p.workEnded()
		first.Withdraw(e)
		return nil, err
	}
	return p, nil
}

// newPermit returns the permit of a call, which has none of etcd's keys yet.
func newPermit(of source, q *sessionQueue, maxHold time.Duration) *Permit {
	p := &Permit{queue: q, maxHold: maxHold, source: of}
	if hooks := q.sess.Hooks(); hooks.On() {
		p.hold = &observedHold{hooks: hooks}
	}
	p.kept.Permit = (*internalPermit)(p)
	return p
}

// granted returns the permit of a request that etcd has granted.
func (a *attempt) granted(ctx context.Context, e *engine.Epoch, c *queue.Ticket) *Permit {
	p := newPermit(a.source, a.queue, a.MaxHold)
	(*internalPermit)(p).Begin(ctx, e, c, time.Now())
	p.queue.CountPermits(c.Weight())
	if a.keeper != nil {
		a.keeper.Grant(&p.kept, e, c, &LostError{Name: p.queue.name, Cause: ErrReleased})
	}
	return p
}

// take returns a permit that was kept, or nil: then etcd is asked.
func (t terms) take(ctx context.Context, q *sessionQueue, r *request) *Permit {
	p := takeKept(ctx, t.keeper, q, r.MaxHold, t.source)
	if p == nil && r.Bounded && t.keeper.WithdrawSurplus(ctx) {
		p = takeKept(ctx, t.keeper, q, r.MaxHold, t.source)
	}
	return p
}

// takeKept returns a permit that was kept and is idle, or nil.
func takeKept(ctx context.Context, k *keep.Keeper, q *sessionQueue, maxHold time.Duration, of source) (p *Permit) {
	if k.Take(ctx, func() *keep.Holder {
		p = newPermit(of, q, maxHold)
		return &p.kept
	}) {
		return p
	}
	return nil // p may be one whose key ended at that moment
}

// isLocal reports whether a call waits in the local queue of its process.
func (a *attempt) isLocal() bool {
	return a.keeper != nil && a.keeper.Handover > 0 && !a.Bounded && a.fetches == nil
}

// waitLocally waits in the local queue.
func (a *attempt) waitLocally(ctx context.Context) (*Permit, error) {
	p := newPermit(a.source, a.queue, a.MaxHold)
	if err := a.keeper.Wait(ctx, &p.kept); err != nil {
		return nil, err
	}
	return p, nil
}
