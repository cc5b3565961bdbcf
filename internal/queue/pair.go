package queue

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// How a request joins the queue of a limiter's total: design note 17.

// pair is the queue of a limiter's key with that of the total, which a request joins when it is admitted at
// its key. It is nil for a queue without a total. A request has the same slot in both queues.
type pair struct {
	key, total *Queue

	mu     sync.Mutex
	filled filling // that of the key
}

// keys returns the keys that a request with that slot may have in the queue of the total.
func (p *pair) keys(s keyspace.Slot) []string {
	if p == nil {
		return nil
	}
	plain, try := s, s
	plain.Try, try.Try = false, true
	return []string{p.total.Keys.Slot(plain), p.total.Keys.Slot(try)}
}

// errUnproven says that it is not certain any more that a request is admitted at its key: a limit
// has changed since, or the request is gone.
var errUnproven = errors.New("a limit has changed")

// join has a request that is admitted at its key join the queue of the total, and waits until
// it is admitted there as well. If it fails, the whole request is being removed.
func (p *pair) join(ctx context.Context, key *joining, c *Ticket, begun time.Time) (*Ticket, error) {
	j, e := key.inTotal(c), key.epoch
	var pause commit.Backoff
	for {
		t, admitted, err := p.enter(ctx, j, c)
		if err == nil && !admitted {
			if err = t.hasRoom(ctx); err == nil {
				if err = t.await(ctx, e, begun); err != nil {
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
		case j.Bounded: // it does not wait: from the beginning
			err = ErrAnew
		default:
			_ = pause.Wait(ctx, nil)
			if err = c.await(ctx, e, begun); err == nil { // which says how full the key is, if ctx has ended
				continue
			}
		}
		c.Withdraw(e)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			full := p.total.unseen()
			if t != nil {
				full = t.fullFound()
			}
			err = full.Ends(c.slot.Weight)
		}
		return nil, err
	}
}

// enter writes the request in the queue of the total, unless it was written with that at the key.
func (p *pair) enter(ctx context.Context, j *joining, c *Ticket) (t *Ticket, admitted bool, err error) {
	if c.next == nil {
		return j.join(ctx)
	}
	if c.next.read != nil {
		admitted, err = c.next.admitted(ctx, c.next.read)
	}
	return c.next.Ticket, admitted, err
}

// hasRoom returns a *Full if more requests wait for the total before one that waits there than
// Terms.MaxTotalWaiters allows.
func (c *Ticket) hasRoom(ctx context.Context) error {
	most := c.call.MaxTotalWaiters
	if most == 0 {
		return nil
	}
	full, ok := c.behind()
	if ok && full.Waiting < most {
		return nil
	}
	q := c.queue
	// Counts do not show holders above a lowered limit, which are no waiters.
	if seen := q.Limit.Seen(); ok && seen != nil && !seen.Lowered {
		refused, err := q.tooFull(ctx, full, c.removed, most, c.Token)
		if err != nil || !refused {
			return err
		}
		return full
	}
	v, err := q.readInTurn(ctx, c.call.Begun)
	if err != nil {
		return err
	}
	if full = q.full(v.Limit, v.Used, waitersBefore(v.Queue, c.Token, q.names(c.removed))); full.Waiting < most {
		return nil
	}
	return full
}

// waitersBefore returns how many requests would wait before one with that token if those that are leaving were gone.
func waitersBefore(q rank.Queue, token int64, leaving map[string]bool) (waiters int) {
	q.Reset(slices.DeleteFunc(slices.Concat(q.Holders(), q.Waiters()), func(e rank.Entry) bool { return leaving[e.Key] }))
	q.Admit()
	for _, e := range q.Waiters() {
		if e.Create < token {
			waiters++
		}
	}
	return waiters
}

// notPaused returns ErrAnew if the key of a request that is admitted in the total is paused: the request
// waits at its key again, so that a key without holders stays without them until it is resumed. Only a Txn
// that admits the request in the total while the key's limit is above 0 needs no read for that.
func (c *Ticket) notPaused(ctx context.Context, t *Ticket) error {
	if c.open && t.atOnce {
		return nil
	}
	l, stored, err := c.queue.Limit.Read(ctx)
	if err == nil && stored && l.N == 0 {
		c.call.shown = c.queue.paused()
		return ErrAnew
	}
	return err
}

// second is the writer of a request in the queue of the total. What is not known to have been written is
// removed with the request at the key.
type second struct {
	*joining
	of *Ticket // the request at the key
}

func (w second) request(_ context.Context, try bool, ifs []clientv3.Cmp) (*Ticket, commit.Creation, error) {
	t := w.ticket(try)
	return t, w.txn(t, append(w.of.proof(), ifs...)), nil
}

// sent returns the token of the request at the key. The nonce is that one's: what is found may be of the Txn
// that has written both, or of a copy of a Txn that was refused. None of them writes it before that request exists.
func (w second) sent(*Ticket, *commit.Result, int64) (oldest int64) { return w.of.Token }

func (w second) drop(_ *Ticket, pending *commit.PendingError) {
	if pending != nil && !w.Queue.sess.Background(pending.Abandon) {
		pending.Abandon()
	}
}

func (w second) occupied() error { return ErrAnew } // its name is that of the request at the key

// ticket returns the request, which has the slot of that at the key.
func (w second) ticket(try bool) *Ticket {
	slot := w.of.slot
	slot.Try = try
	t := &Ticket{Ticket: w.of.Ticket, queue: w.Queue, named: w.of.queue, call: w.Call, slot: slot, Key: w.Queue.Keys.Slot(slot)}
	if w.MaxTotalWaiters > 0 {
		t.removed = w.epoch.Leaving(w.Queue.numbered)
	}
	return t
}

// txn is the Txn that writes the request. Its nonce is that of the request at the key, by which it is found
// if one Txn has written both.
func (w second) txn(t *Ticket, ifs []clientv3.Cmp) commit.Creation {
	value := w.value(w.of.nonce)
	value.Of, value.ID = w.of.Key, w.of.call.ID
	return w.creation(t, value, ifs)
}

// resolve returns errUnproven if the proof of the request's admission at its key does not hold, and
// errRefused if it does.
func (w second) resolve(ctx context.Context, _ []*etcdserverpb.ResponseOp) error {
	at := w.of.queue
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return at.sess.KV().Txn(call).If(w.of.proof()...).Then(clientv3.OpGet(at.base.Key)).Else(clientv3.OpGet(at.base.Key)).Commit()
	})
	if err != nil {
		return err
	}
	at.base.met(limit.First(resp.Responses[0]))
	if resp.Succeeded {
		return errRefused
	}
	return errUnproven
}

// proof returns the conditions by which a request is admitted at its key: it exists, and the limits
// are those by which it was.
func (c *Ticket) proof() []clientv3.Cmp {
	return append([]clientv3.Cmp{commit.Guard(c.Key, c.Token)}, c.queue.Limit.Unchanged(c.at)...)
}

// nextTicket is a request in the queue of the total that was written with that at its key.
type nextTicket struct {
	*Ticket
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

// gone counts a request less of which etcd has confirmed that it was there and is removed. sent is the revision of what was known
// when the removal was sent: if that is another one by now, what is known may lack the request already,
// and it must not be counted less twice.
func (f *filling) gone(token, weight, sent int64) {
	if f.rev == sent && token <= f.rev {
		f.weight = max(0, f.weight-weight)
	}
}

// fill records how full the queue of the key is, as the Txn of a request has shown it. Of heavy requests only
// the number is known.
func (p *pair) fill(c *Ticket, light, others int64) {
	if p == nil {
		return
	}
	if others > 0 {
		light = math.MaxInt32
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filled.saw(c.Token, light)
}

// forget has the pair forget how full the queue of the key is: a revision may be that of another state by now.
func (p *pair) forget() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filled = filling{}
}

// removes returns what is called when etcd confirms that the removal of a request, which is sent now, has found it.
func (p *pair) removes(c *Ticket) (confirmed func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.filled.rev
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.filled.gone(c.Ticket.Token, c.slot.Weight, sent)
	}
}

// with adds to the Txn of a request one inside it, which writes that in the queue of the total as
// well if the first is certainly admitted: no request has come to its key since the revision at which
// there was room, and the limits are the same. A process that knows nothing of a key takes its queue
// for empty.
func (p *pair) with(j *joining, c *Ticket, tx *commit.Creation) {
	if p == nil || j.Bounded {
		return
	}
	p.mu.Lock()
	filled := p.filled
	p.mu.Unlock()
	q := p.key
	known := cmp.Or(q.Limit.Seen(), q.base.Seen())
	if known == nil || !rank.Fits(filled.weight, c.slot.Weight, known.N) {
		return
	}
	w := second{j.inTotal(c), c}
	t := w.ticket(false)
	next := w.txn(t, nil)
	ifs := append(q.Limit.Unchanged(known.Revs), clientv3.Compare(clientv3.CreateRevision(next.Key), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(q.Keys.Requests), "<", filled.rev+1).WithPrefix())
	put := clientv3.OpPut(next.Key, next.Value, clientv3.WithLease(j.epoch.Lease()))
	tx.Read = append(tx.Read, clientv3.OpTxn(ifs, append([]clientv3.Op{put}, next.Read...), nil))
	c.next = &nextTicket{Ticket: t}
	c.at, c.open = known.Revs, true // it has room, so it is no pause
}

// takeNext takes what with has added from what the Txn has read. What is not known to have been
// written is written again when the request is admitted at its key, and found then.
func (c *Ticket) takeNext(read []*etcdserverpb.ResponseOp) []*etcdserverpb.ResponseOp {
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
func (c *Ticket) joined() { c.Joined = engine.Joined{Key: c.Key, Token: c.Token} }
