package queue

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Ticket is one request that this session has written, or is about to, in one queue.
type Ticket struct {
	*engine.Ticket        // the whole request, in all queues
	Key            string // in this queue
	Token          int64

	queue   *Queue
	named   *Queue // that of its key, where this is one in a total: its Txns belong to both
	call    *Call  // in this queue
	slot    keyspace.Slot
	found   mirror.Found
	foreign []mirror.ForeignKey // those that its Txn reads
	at      limit.Revs          // of the limit by which it was last compared
	open    bool                // the limit there is above 0
	atOnce  bool                // its own Txn admits it
	nonce   string              // of its value, and of that in the total's queue
	came    func()              // is called when it waits
	removed []engine.Leaving    // in the total's queue: this session's requests that were being removed when it was sent
	next    *nextTicket         // that in the total's queue, if one Txn has written both
}

// Weight returns the weight of the request.
func (c *Ticket) Weight() int64 { return c.slot.Weight }

// Level returns the level of a limiter in whose queue the request is.
func (c *Ticket) Level() Level { return c.queue.Level() }

// Ahead returns how many requests were before this one when it was written, as far as its Txn shows.
func (c *Ticket) Ahead() int { return c.found.Ahead }

// Leaves is called when the removal of a request that was admitted is sent, and removed when etcd confirms that it has found
// the request.
func (c *Ticket) Leaves() (removed func()) { return c.named.pair.removes(c) }

// waiting is the call of a request that waits, a crowd.Caller.
type waiting struct {
	epoch  *engine.Epoch
	ticket *Ticket
	begun  time.Time
}

func (w *waiting) Noticed() <-chan struct{} { return w.epoch.Noticed(w.ticket.Ticket) }

func (w *waiting) Restore(ctx context.Context) error {
	c := w.ticket
	_, err := c.queue.Limit.Init(ctx, c.call.Limit, c.call.Rate)
	return err
}

func (w *waiting) Follows(ctx context.Context, m *mirror.Mirror) (stop func()) {
	return w.ticket.call.Caller.Follows(ctx, w.ticket, w.begun, m)
}

func (w *waiting) Sleeps(ctx context.Context) { w.ticket.call.Caller.Sleeps(ctx, w.ticket, w.begun) }

// errPatience is the cause of the end of a ctx by patience, and the error of a wait that this has ended.
var errPatience = errors.New("tries were in the way for too long")

// await waits until the request is admitted. If it fails, the request is gone, or is being removed, but for errPatience.
func (c *Ticket) await(ctx context.Context, e *engine.Epoch, begun time.Time) error {
	q := c.queue
	if end, ok := ctx.Deadline(); ok {
		defer e.ProbeBefore(end)()
	}
	defer q.sess.Etcd().Await()()
	s, leave := q.Crowd.Enter(crowd.Request{
		Key: c.Key, Token: c.Token, Weight: c.slot.Weight, Try: c.slot.Try, Found: c.found, Caller: &waiting{e, c, begun},
	})
	defer leave()
	if c.came != nil {
		c.came()
	}
	r := q.Crowd.Await(ctx, s)
	switch r.End {
	case crowd.Admitted:
		c.at, c.open = limit.RevsOf(r.Limits), r.Limits.InForce().Limit.Limit > 0
		return nil
	case crowd.Gone:
		defer c.gone(e) // not before: a notice that comes then is not kept
		return c.whyGone(ctx, e, begun)
	}
	if r.End == crowd.Ended && context.Cause(ctx) == errPatience {
		return errPatience
	}
	var full *Full
	if r.End == crowd.Ended {
		full = c.fullAt(ctx, r) // it counts the request, too
	}
	c.Withdraw(e)
	switch r.End {
	case crowd.TooHeavy:
		return q.tooHeavy(c.slot.Weight, r.Seen.Limit)
	case crowd.Ended:
		return full.Ends(c.slot.Weight)
	}
	return r.Err
}

// whyGone returns why a waiting request's key is gone. While etcd denies the read of the notice, it repeats that for a TTL, and
// returns etcd's error then.
func (c *Ticket) whyGone(ctx context.Context, e *engine.Epoch, begun time.Time) error {
	if n := e.Notice(c.Ticket); n != nil {
		return &Noticed{c.Ticket.Token, *n}
	}
	// If all requests of a lease have gone, the first few calls find that out.
	leave, err := c.queue.Turn(ctx, &c.queue.sess.Asking, begun)
	if err != nil {
		return err
	}
	if !e.Valid() {
		leave()
		return engine.ErrEpoch
	}
	n, err := e.FindNotice(ctx, c.Ticket)
	leave() // not after the repetition, for which the calls behind it would wait
	// If the key was deleted by hand, there is no notice, and nothing else ends the call.
	bounded, cancel := context.WithTimeout(ctx, c.queue.sess.TTL())
	defer cancel()
	err = commit.AllowedAfter(bounded, err, e.Valid, func() (err error) {
		n, err = e.FindNotice(ctx, c.Ticket)
		return err
	})
	switch {
	case n != nil:
		return &Noticed{c.Ticket.Token, *n}
	case err != nil && ctx.Err() == nil && e.Valid():
		return err
	}
	return ErrAnew // deleted by hand, or with the lease, whose loss the session is about to notice
}

// gone frees the slot of a request whose key is gone in one queue, or removes what is left of it in the other.
func (c *Ticket) gone(e *engine.Epoch) {
	if c.named != c.queue { // its key's request may exist
		c.Withdraw(e)
		return
	}
	e.Free(c.Ticket)
}

// Withdraw removes a request that its call has given up: see engine.Epoch.Withdraw.
func (c *Ticket) Withdraw(e *engine.Epoch) { e.Withdraw(c.Ticket, c.DeletionRefused) }

// DeletionRefused logs that etcd refuses to delete the request.
func (c *Ticket) DeletionRefused(err error) {
	q := c.queue
	q.sess.Log().Warn("etcd refuses to delete the key of a request that has ended; the session repeats it until its lease ends",
		zap.String("name", q.Name), zap.Int64("token", c.Token), zap.Error(q.sess.Explain(err)))
}
