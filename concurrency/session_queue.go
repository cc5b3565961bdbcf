package concurrency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// sessionQueue is one queue in etcd as one session uses it. All semaphores of a name, or
// all mutexes, share it and its mirror.
type sessionQueue struct {
	sess  *engine.Session
	own   *shared
	name  string
	kind  observe.Kind
	fixed int64 // the limit if it is not stored in etcd: a mutex's
	keys  keyspace.Queue
	view  *mirror.Shared
	limit limit.Store
	base  *base         // the default limit, or nil
	total *sessionQueue // that of the total, which a request joins when it is admitted here, or nil

	limiter *KeyedLimiter // whose total this is, or nil
	sharing sharing       // of a semaphore or a total: this process's share of the limit without etcd

	subjects []string // the queues to which the Txn of a request belongs; none if each is sent alone

	invalid error // what every call returns, if the queue cannot exist

	mu      sync.Mutex
	checked time.Time                      // when foreign keys were last reported
	leases  map[clientv3.LeaseID]leaseSeen // of holders, as the reports to waiters have found them
	strays  []mirror.Stray                 // those that a view has shown last
	tries   map[int64]time.Time            // those that the last look has found, by token, and since when
	filled  filling                        // where there is a total

	waiters waiters
	foreign atomic.Int64   // how many foreign keys a far request reads beside the requests before it
	front   *mirror.Shared // what the waiters follow that have been far
	horizon queue.Horizon
	distant distant
}

// run keeps a mirror of the queue up to date until it is stopped. It lives as long as
// its view, so that a caller that comes soon finds both.
func (q *sessionQueue) run(m *mirror.Mirror) (stop context.CancelFunc) {
	source, keys := q.sess.Source(), q.keys.Range
	return q.runs(m, func(ctx context.Context) { source.Follow(ctx, keys, 0, m) })
}

// runFront is run for the front part of the queue.
func (q *sessionQueue) runFront(m *mirror.Mirror) (stop context.CancelFunc) {
	alone := q.deletionsAlone(1)
	return q.runs(m, func(ctx context.Context) { q.sess.Source().Front(ctx, m, q.waiters.newest, alone) })
}

// deletionsAlone reports whether the session follows deletions alone in the front of a queue of so many
// times as many requests as its newest one has found.
func (q *sessionQueue) deletionsAlone(times int) bool {
	_, last := q.waiters.ends()
	return last != nil && last.found.Known && q.horizon.Crowded(q.limitSeen(), times*(last.found.Ahead+1), q.waiters.own())
}

func (q *sessionQueue) runs(m *mirror.Mirror, follow func(context.Context)) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(q.sess.Context())
	detach := func() {}
	if q.base != nil {
		detach = q.base.attach(m)
	}
	q.sess.Background(func() { follow(ctx) })
	return func() { cancel(); detach() }
}

// reset has the queue forget what it has seen; calls that wait or watch go over to a new mirror.
func (q *sessionQueue) reset() {
	q.limit.Forget()
	q.mu.Lock()
	q.strays, q.filled = nil, filling{} // a revision may be that of another state by now
	q.mu.Unlock()
	q.view.Replace()
	q.front.Replace()
}

// ticket is one request that this session has written, or is about to, in one queue.
type ticket struct {
	*engine.Ticket // the whole request, in all queues
	queue          *sessionQueue
	request        request
	slot           keyspace.Slot
	Key            string // in this queue
	Token          int64
	found          mirror.Found
	strays         []mirror.Stray // those that its Txn reads
	at             limit.Revs     // by which it was admitted
	open           bool           // the limit there is above 0
	atOnce         bool           // its own Txn admits it
	nonce          string         // of its value, and of that in the total's queue
	came           func()         // is called when it waits
	next           *nextTicket    // that in the total's queue, if one Txn has written both
}

// do runs a call that ends when Close begins, with ErrClosed then.
func (q *sessionQueue) do(ctx context.Context, call func(context.Context) error) error {
	if q.invalid != nil {
		return q.invalid
	}
	return q.sess.Do(ctx, call)
}

// acquire is the life of one call that asks for a permit.
func (q *sessionQueue) acquire(ctx context.Context, r request) (*Permit, error) {
	begun := time.Now()
	if err := cmp.Or(q.invalid, ctx.Err()); err != nil {
		return nil, q.failed(r.doing, err)
	}
	bounded, cancel := r.bound(ctx)
	defer cancel()
	within := q.acquireWithin
	if r.hands() {
		within = r.keeper.wait
	}
	p, err := within(bounded, r, begun)
	if err == nil {
		return p, nil
	}
	err = q.ended(ctx, bounded, begun, err)
	if full, ok := err.(*FullError); ok { //nolint:errorlint // not what it wraps
		err = q.atLevel(full)
	}
	return nil, q.failed(r.doing, err)
}

// acquireWithin is acquire until ctx ends.
func (q *sessionQueue) acquireWithin(ctx context.Context, r request, begun time.Time) (*Permit, error) {
	lease := q.sess.Lease()
	if r.entry != nil && !r.entry.admitted {
		if err := q.sess.Do(ctx, func(ctx context.Context) error { return r.entry.enter(ctx, q, begun) }); err != nil {
			return nil, err
		}
	}
	if r.prepare != nil {
		leave, err := q.turn(ctx, &q.sess.Sending, begun)
		if err != nil {
			return nil, err
		}
		err = q.sess.Do(ctx, r.prepare)
		leave()
		if err != nil {
			return nil, err
		}
	}
	var pause commit.Backoff
	var former *ticket // of a call that queues anew
	for round := 0; ; round++ {
		e, err := q.sess.Live(ctx)
		if err == nil {
			// A call that has met an outage asks in turn with all those that have lost their
			// requests by it.
			if e.Lease() != lease {
				round = max(round, 1)
			}
			var p *Permit
			if p, former, err = q.acquireOn(ctx, e, r, begun, round, former); err == nil {
				return p, nil
			}
		}
		switch {
		case errors.Is(err, engine.ErrEpoch):
		case errors.Is(err, errAnew):
			if err := pause.Wait(ctx, nil); err != nil {
				if context.Cause(ctx) == errWaited {
					err = q.fullUnseen()
				}
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

var (
	errWaited = errors.New("waited long enough")
	errTried  = errors.New("tried long enough")
	errAnew   = errors.New("the request is gone; it queues anew")
)

// failed names the queue in an error, and says what to change if that denies permission.
func (q *sessionQueue) failed(doing string, err error) error {
	return q.named(doing, q.sess.Explain(err))
}

// named names the queue in an error, which may be that of a caller's function.
func (q *sessionQueue) named(doing string, err error) error {
	if _, ok := err.(*LostError); ok { //nolint:errorlint // it names the queue itself
		return err
	}
	return fmt.Errorf("%s %q: %w", doing, q.name, err)
}

// fullError describes how full a queue is, without the caller's own request.
func fullError(name string, v mirror.View, own int64) *FullError {
	full := &FullError{Name: name, Limit: int(v.Limit), Used: int(v.Used)}
	for _, r := range v.Waiters {
		if r.Create != own {
			full.Waiting++
		}
	}
	return full
}

// acquireOn asks on one lease. engine.ErrEpoch and errAnew mean: ask again, with the ticket that
// it returns then. When it fails, the request is gone, is being removed in the background,
// or goes with a lost lease.
func (q *sessionQueue) acquireOn(caller context.Context, e *engine.Epoch, r request, begun time.Time, round int, former *ticket) (_ *Permit, c *ticket, err error) {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	defer context.AfterFunc(e.Accepting(), func() { cancel(context.Cause(e.Accepting())) })()

	leave := func() {}
	if round > 0 {
		if leave, err = q.turn(ctx, &q.sess.Requeue, begun); err != nil {
			return nil, former, cmp.Or(e.Refuses(caller), err)
		}
		if former != nil && former.Also != nil {
			// Its ID is in the way. It was that of a waiter, so it protects no work.
			_, _ = q.sess.Remove(ctx, former.Stored)
		}
	}
	came := q.comes(r)
	defer came()
	var admitted bool
	if r.bounded {
		c, admitted, err = q.enqueueBounded(ctx, e, r)
	} else {
		c, admitted, err = q.enqueue(ctx, e, r, false, nil)
	}
	leave()
	r.entry.landed()
	if err == nil && (!admitted || q.total != nil) {
		defer e.WhileWaiting(c.Ticket, func(n record.Notice) { cancel(c.ending(ErrEvicted, noticeReason(n))) })()
	}
	if err == nil && !admitted && c.next == nil {
		c.came = came
		if r.bid != nil {
			r.bid.before.Store(q.crowdBefore(c))
		}
		err = q.await(ctx, e, c, begun)
	}
	came()
	last := c
	if err == nil && q.total != nil {
		last, err = q.joinTotal(ctx, e, c, begun)
	}
	if err != nil {
		if asked, ok := context.Cause(ctx).(*LostError); ok { //nolint:errorlint // its own
			err = asked
		}
		return nil, cmp.Or(c, former), cmp.Or(e.Refuses(caller), err)
	}
	// An answer that comes after the lease's deadline is no permit.
	p := newPermit(ctx, e, q, last)
	if err := p.register(); err != nil {
		p.workEnded()
		e.Withdraw(c.Ticket, q.refusal(c))
		return nil, c, err
	}
	return p, c, nil
}

// confirm reports whether a request is admitted that the view shows as admitted. That needs no
// confirmation where one watch brings the queue and its limit. Otherwise the end of an earlier request may
// be seen before a change of the limit that came first. The weight up to the request only falls, so the
// request is admitted as of this one read if it fits the limit there.
func (q *sessionQueue) confirm(ctx context.Context, c *ticket, w *mirror.Waiter) (bool, error) {
	if !w.Suggested() || q.total != nil { // the Txn by which it joins the total confirms it
		return true, nil
	}
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.KV().Txn(call).Then(append(q.limit.Reads(), clientv3.OpGet(c.Key, clientv3.WithKeysOnly()))...).Commit()
	})
	if err != nil {
		return false, err
	}
	q.sess.See(resp.Header.Revision)
	own, base, key := limit.First(resp.Responses[0]), (*mvccpb.KeyValue)(nil), limit.First(resp.Responses[len(resp.Responses)-1])
	if q.base != nil {
		base = limit.First(resp.Responses[1])
		q.base.met(base)
	}
	if key == nil || key.CreateRevision != c.Token {
		return false, nil // the view is about to show that
	}
	seen, stored, err := q.limit.Learn(own, base)
	if err != nil || !stored {
		return false, nil // likewise
	}
	return queue.Fits(0, w.UpTo(), seen.N) || own != nil && mirror.ReadStored(own).Through >= c.Token, nil
}

// tooHeavy returns the error of a weight that a limit of that level, which is empty for a semaphore's,
// can never admit.
func tooHeavy(level Level, weight, most int64) error {
	limit := map[Level]string{
		"":         "the limit of %d (SetLimit changes it)",
		LevelKey:   "the key's limit of %d (SetLimit of the key, or SetDefault, changes it)",
		LevelTotal: "the total of %d of all keys (KeyedLimiterOptions.Total; if it is stored already, SetLimit of Total changes it)",
	}[level]
	return invalid("Weight(%d) is above "+limit, weight, most)
}

// gone frees the slot of a request whose key is gone in one queue.
func (q *sessionQueue) gone(e *engine.Epoch, c *ticket) {
	if c.request.of != nil { // its key's request may exist
		e.Withdraw(c.Ticket, q.refusal(c))
		return
	}
	e.Free(c.Ticket)
}

// refusal logs that etcd refuses to delete a request.
func (q *sessionQueue) refusal(c *ticket) func(error) {
	return func(err error) {
		q.sess.Log().Warn("etcd refuses to delete the key of a request that has ended; the session repeats it until its lease ends",
			zap.String("name", q.name), zap.Int64("token", c.Token), zap.Error(q.sess.Explain(err)))
	}
}
