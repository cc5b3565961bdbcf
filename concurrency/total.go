package concurrency

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// How a request joins the queue of a limiter's total: design note 17.

// errUnproven says that it is not certain any more that a request is admitted at its key: a limit
// has changed since, or the request is gone.
var errUnproven = errors.New("a limit has changed")

// numbered returns the range of the queue that numbers the requests of this one: a request has the
// same slot in the queue of its key and in that of the total.
func (q *sessionQueue) numbered() string {
	if q.total != nil {
		return q.total.keys.Range
	}
	return q.keys.Range
}

// nextKeys returns the keys that a request with that slot may have in the queue of the total.
func (q *sessionQueue) nextKeys(s keyspace.Slot) []string {
	if q.total == nil {
		return nil
	}
	plain, try := s, s
	plain.Try, try.Try = false, true
	return []string{q.total.keys.Slot(plain), q.total.keys.Slot(try)}
}

// joinTotal has a request that is admitted at its key join the queue of the total, and waits until
// it is admitted there as well. If it fails, the whole request is being removed.
func (q *sessionQueue) joinTotal(ctx context.Context, e *engine.Epoch, c *ticket, begun time.Time) (*ticket, error) {
	a := c.attempt.inTotal(c)
	c.attempt.ahead = nil // it may be large
	var pause commit.Backoff
	for {
		var t *ticket
		var admitted bool
		var err error
		if c.next != nil {
			if t, admitted, err = c.next.ticket, false, nil; c.next.read != nil {
				admitted, err = q.total.admitted(ctx, t, c.next.read)
			}
		} else if a.bounded {
			t, admitted, err = q.total.enqueueBounded(ctx, e, a)
		} else {
			t, admitted, err = q.total.enqueue(ctx, e, a, false, nil)
		}
		if err == nil && !admitted {
			if err = q.total.hasRoom(ctx, t); err == nil {
				if err = q.total.await(ctx, e, t, begun); err != nil {
					return t, err // it is being removed
				}
			}
		}
		if err == nil {
			err = c.notPaused(ctx, t)
		}
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, errUnproven):
		case a.bounded: // it does not wait: from the beginning
			err = errAnew
		default:
			if err = pause.Wait(ctx, nil); err == nil {
				err = q.await(ctx, e, c, begun)
			}
			if err == nil {
				continue
			}
		}
		e.Withdraw(c.Ticket, q.refusal(c))
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = &waitEnd{&full{queue: q.total, limit: limit.SeenN(q.total.limit), unseen: true}}
			if t != nil {
				err = &waitEnd{q.total.fullFound(t)}
			}
		}
		return nil, err
	}
}

// notPaused returns errAnew if the key of a request that is admitted in the total is paused: the request
// waits at its key again, so that a key without holders stays without them until it is resumed. Only a Txn
// that admits the request in the total while the key's limit is above 0 needs no read for that.
func (c *ticket) notPaused(ctx context.Context, t *ticket) error {
	if c.open && t.atOnce {
		return nil
	}
	l, stored, err := c.queue.limit.Read(ctx)
	if err == nil && stored && l.N == 0 {
		return errAnew
	}
	return err
}

// writeNext is write for a request in the queue of the total. What is not known to have been
// written is removed with the request at the key.
func (q *sessionQueue) writeNext(ctx context.Context, e *engine.Epoch, a *attempt, try bool, ifs []clientv3.Cmp) (_ *ticket, read []*etcdserverpb.ResponseOp, _ outcome, _ error) {
	c := a.of
	a.ahead = nil
	slot := c.slot
	slot.Try = try
	t := &ticket{Ticket: c.Ticket, queue: q, attempt: a, slot: slot, Key: q.keys.Slot(slot)}
	leave, err := q.turn(ctx, &q.sess.Sending, time.Now())
	if err != nil {
		return nil, nil, failed, err
	}
	seen := q.sess.Seen()
	res, err := e.Fence().Create(ctx, q.creation(e, t, append(q.proof(c), ifs...)))
	leave()
	t.Token = res.Token
	// The nonce is that of the request at the key: what is found may be of the Txn that has written both,
	// or of a copy of a Txn that was refused. None of them writes it before that request exists.
	out := outcomeOf(res, err, seen, c.Token)
	switch out {
	case written:
		t.joined()
		q.sess.See(res.Token)
	case refused, failed:
	case unsettled:
		if pending, _ := errors.AsType[*commit.PendingError](err); !q.sess.Background(pending.Abandon) {
			pending.Abandon()
		}
	case occupied:
		q.sess.Log().Warn("a foreign key has the name of one of this session's requests; the session uses another name", zap.String("key", t.Key))
		e.Waste(c.Ticket)
		return nil, nil, failed, errAnew
	default:
		err = q.lost(e, out)
	}
	return t, res.Read, out, err
}

// proof returns the conditions by which a request is admitted at its key: it exists, and the limits
// are those by which it was.
func (q *sessionQueue) proof(c *ticket) []clientv3.Cmp {
	return append([]clientv3.Cmp{commit.Guard(c.Key, c.Token)}, c.queue.limit.Unchanged(c.at)...)
}

// disproved returns errUnproven if the proof of a request's admission at its key does not hold, and
// errRefused if it does.
func (q *sessionQueue) disproved(ctx context.Context, c *ticket) error {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.KV().Txn(call).If(q.proof(c)...).Then(clientv3.OpGet(c.queue.base.Key)).Else(clientv3.OpGet(c.queue.base.Key)).Commit()
	})
	if err != nil {
		return err
	}
	c.queue.base.met(limit.First(resp.Responses[0]))
	if resp.Succeeded {
		return errRefused
	}
	return errUnproven
}

// nextTicket is a request in the queue of the total that was written with that at its key.
type nextTicket struct {
	*ticket
	read []*etcdserverpb.ResponseOp // what shows whether it is admitted
}

// filling is how full the queue of a key was at most, as of a revision.
type filling struct {
	rev    int64
	weight int64
}

// saw takes over what the Txn of a request has shown, unless a later one is known.
func (f *filling) saw(rev, weight int64) {
	if rev > f.rev {
		*f = filling{rev, weight}
	}
}

// gone counts a request less whose removal etcd has confirmed. sent is the revision of what was known
// when the removal was sent: if that is another one by now, what is known may lack the request already,
// and it must not be counted less twice.
func (f *filling) gone(token, weight, sent int64) {
	if f.rev == sent && token <= f.rev {
		f.weight = max(0, f.weight-weight)
	}
}

// fill records how full the queue is, as the Txn of a request has shown it. Of heavy requests only
// the number is known.
func (q *sessionQueue) fill(c *ticket, light, others int64) {
	if q.total == nil {
		return
	}
	if others > 0 {
		light = math.MaxInt32
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.filled.saw(c.Token, light)
}

// removes returns what is called when the removal of a request is confirmed, which is sent now.
func (q *sessionQueue) removes(c *ticket) (confirmed func()) {
	if q.total == nil {
		return func() {}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	sent := q.filled.rev
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.filled.gone(c.Ticket.Token, c.slot.Weight, sent)
	}
}

// withNext adds to the Txn of a request one inside it, which writes that in the queue of the total as
// well if the first is certainly admitted: no request has come to its key since the revision at which
// there was room, and the limits are the same. A process that knows nothing of a key takes its queue
// for empty.
func (q *sessionQueue) withNext(e *engine.Epoch, c *ticket, tx *commit.Creation) {
	if q.total == nil || c.attempt.bounded {
		return
	}
	q.mu.Lock()
	filled := q.filled
	q.mu.Unlock()
	known := cmp.Or(q.limit.Seen(), q.base.Seen())
	if known == nil || !queue.Fits(filled.weight, c.slot.Weight, known.N) {
		return
	}
	t := &ticket{Ticket: c.Ticket, queue: q.total, attempt: c.attempt.inTotal(c), slot: c.slot, Key: q.total.keys.Slot(c.slot)}
	next := q.total.creation(e, t, nil)
	ifs := append(q.limit.Unchanged(known.Revs), clientv3.Compare(clientv3.CreateRevision(next.Key), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(q.keys.Requests), "<", filled.rev+1).WithPrefix())
	put := clientv3.OpPut(next.Key, next.Value, clientv3.WithLease(e.Lease()))
	tx.Read = append(tx.Read, clientv3.OpTxn(ifs, append([]clientv3.Op{put}, next.Read...), nil))
	c.next = &nextTicket{ticket: t}
	c.at, c.open = known.Revs, true // it has room, so it is no pause
}

// takeNext takes what withNext has added from what the Txn has read. What is not known to have been
// written is written again when the request is admitted at its key, and found then.
func (c *ticket) takeNext(read []*etcdserverpb.ResponseOp) []*etcdserverpb.ResponseOp {
	if c.next == nil {
		return read
	}
	if len(read) == 0 || c.Token == 0 {
		c.next = nil
		return read
	}
	inner := read[len(read)-1].GetResponseTxn()
	if inner.Succeeded {
		c.next.Token, c.next.read = c.Token, inner.Responses[1:]
		c.next.joined()
	} else {
		c.next = nil
	}
	return read[:len(read)-1]
}

// joined records that the request in the queue of the total was written.
func (c *ticket) joined() { c.Joined = engine.Joined{Key: c.Key, Token: c.Token} }

// both returns the queue of a key and that of the total, as of one revision. shared is false if the stored
// default says that the keys share no total: then a limiter that adopts what is stored has none either.
func (q *sessionQueue) both(ctx context.Context) (at, all mirror.View, shared bool, err error) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return q.sess.KV().Txn(call).Then(clientv3.OpGet(q.keys.Range, clientv3.WithPrefix()),
			clientv3.OpGet(q.base.Key), clientv3.OpGet(q.total.keys.Range, clientv3.WithPrefix())).Commit()
	})
	if err != nil {
		return at, all, false, err
	}
	revision, base := resp.Header.Revision, mirror.ReadStored(limit.First(resp.Responses[1]))
	q.sess.See(revision)
	at = mirror.Read(q.keys, 0, base, resp.Responses[0].GetResponseRange().Kvs, revision)
	all = mirror.Read(q.total.keys, 0, mirror.Stored{}, resp.Responses[2].GetResponseRange().Kvs, revision)
	return at, all, base.Rev == 0 || base.Damaged || base.Limit.Total, nil
}

// describeBoth describes the queue of a key. Its holders are the requests that hold in the total, and
// have the tokens of their permits; those that wait there are the first of its waiters, and use the
// limit of the key.
func (q *sessionQueue) describeBoth(at, all mirror.View, shared bool) Status {
	st := q.describe(at)
	if !shared {
		return st
	}
	for i := range st.Waiters {
		st.Waiters[i].WaitsFor = LevelKey
	}
	var held, wait []Request
	for i, r := range at.Holders {
		if t := q.nextOf(all.Holders, r); t != nil {
			st.Holders[i].Token = t.Create
			held = append(held, st.Holders[i])
		} else {
			st.Holders[i].WaitsFor = LevelTotal
			wait = append(wait, st.Holders[i])
		}
	}
	st.Holders, st.Waiters = held, append(wait, st.Waiters...)
	return st
}

// nextOf returns the request in the queue of the total that belongs to one at the key, or nil.
func (q *sessionQueue) nextOf(in []mirror.Request, r mirror.Request) *mirror.Request {
	names := q.nextKeys(r.Slot)
	i := slices.IndexFunc(in, func(t mirror.Request) bool { return slices.Contains(names, t.Key) })
	if i < 0 {
		return nil
	}
	return &in[i]
}
