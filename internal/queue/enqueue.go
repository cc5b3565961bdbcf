package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

// joining is a call that joins its queue, on one lease.
type joining struct {
	*Call
	epoch    *engine.Epoch
	writer   writer
	seen     *outlook  // of its queue, before it began
	ahead    *outlook  // of the total that it joins next
	removals *removals // of a bounded call
}

// writer is what differs between the request of a call at a key, or its only one, and that in the queue of a total.
type writer interface {
	// request returns a request and the Txn that writes it, on conditions of the caller's own.
	request(ctx context.Context, try bool, ifs []clientv3.Cmp) (*Ticket, commit.Creation, error)
	// sent takes over what etcd has answered. It returns the least token with which the request can have been
	// written, if seen is the greatest revision that was met before.
	sent(c *Ticket, res *commit.Result, seen int64) (oldest int64)
	// drop settles a request that was not written. pending is not nil if that is not known.
	drop(c *Ticket, pending *commit.PendingError)
	// occupied returns nil if the request may have another name, or why not.
	occupied() error
	// resolve looks at why the request was refused by its conditions. It returns nil if it is worth asking
	// again at once, an *oursError if it is in a moment, errRefused if the caller's own conditions were not
	// met, or another error.
	resolve(ctx context.Context, read []*etcdserverpb.ResponseOp) error
}

// joins returns the call as it joins its queue.
func (c *Call) joins(e *engine.Epoch) *joining {
	j := &joining{Call: c, epoch: e}
	j.writer = first{j}
	if c.Bounded {
		j.removals = newRemovals(e, c.Queue.numbered)
	}
	return j
}

// inTotal returns the call as it joins the queue of the total, for a request that is admitted at its key.
func (j *joining) inTotal(c *Ticket) *joining {
	t := &joining{Call: j.Call.inTotal(), epoch: j.epoch, seen: j.ahead, removals: j.removals}
	j.ahead = nil
	t.writer = second{t, c}
	return t
}

// join writes a request. If it fails, no request is left but one that is being removed in the background.
func (j *joining) join(ctx context.Context) (_ *Ticket, admitted bool, err error) {
	var c *Ticket
	if j.Bounded {
		c, admitted, err = j.joinBounded(ctx)
	} else {
		c, admitted, err = j.enqueue(ctx, false, nil)
	}
	return c, admitted, j.Ended(ctx, err)
}

// errRefused says that the caller's own conditions were not met.
var errRefused = errors.New("the conditions of the request are not met")

// enqueue writes a request, in one Txn that also reads what shows whether it is admitted at
// once. ifs are conditions of the caller's own.
func (j *joining) enqueue(ctx context.Context, try bool, ifs []clientv3.Cmp) (_ *Ticket, admitted bool, err error) {
	var pause commit.Backoff
	var ours *oursError // why the call has waited so far
	defer func() {
		if err != nil && ours != nil && context.Cause(ctx) == ErrWaited {
			err = ours.held
		}
	}()
	for {
		c, read, outcome, err := j.write(ctx, try, ifs)
		switch outcome {
		case written:
			admitted, err := c.admitted(ctx, read)
			if err != nil {
				c.Withdraw(j.epoch)
				return nil, false, err
			}
			return c, admitted, nil
		case occupied:
			if err := j.writer.occupied(); err != nil {
				return nil, false, err
			}
			continue // with the next name
		case refused:
		default:
			return nil, false, err
		}
		err = j.writer.resolve(ctx, read)
		switch afterRefusal(err, j.Bounded, len(ifs) > 0) {
		case fail:
			return nil, false, err
		case wait:
			ours = asOurs(err)
			if err := pause.Wait(ctx, nil); err != nil {
				return nil, false, err
			}
		}
	}
}

// write sends the Txn of the request once. Unless the request was written, it also settles the ticket, in the
// background if need be.
func (j *joining) write(ctx context.Context, try bool, ifs []clientv3.Cmp) (_ *Ticket, read []*etcdserverpb.ResponseOp, _ outcome, _ error) {
	q := j.Queue
	c, tx, err := j.writer.request(ctx, try, ifs)
	if err != nil {
		return nil, nil, failed, err
	}
	leave, err := q.Turn(ctx, &q.sess.Sending, time.Now())
	if err != nil {
		j.writer.sent(c, &commit.Result{}, 0)
		j.writer.drop(c, nil)
		return nil, nil, failed, err
	}
	history := q.sess.History()
	seen := history.Seen()
	res, err := j.epoch.Fence().Create(ctx, tx)
	leave()
	c.Token = res.Token
	oldest := j.writer.sent(c, &res, seen)
	out := outcomeOf(res, err, seen, oldest)
	if out == rewound {
		q.sess.Rewind(history)
	}
	switch out {
	case written:
		if c.named != c.queue {
			c.joined()
		}
		history.See(res.Token)
	case refused, failed:
		j.writer.drop(c, nil)
	case unsettled:
		pending, _ := errors.AsType[*commit.PendingError](err)
		j.writer.drop(c, pending)
	case occupied:
		q.sess.Log().Warn("a foreign key has the name of one of this session's requests; the session uses another name", zap.String("key", c.Key))
		j.epoch.Waste(c.Ticket)
	case gone:
		j.epoch.Gone()
		err = engine.ErrEpoch
	default:
		err = engine.ErrEpoch
	}
	return c, res.Read, out, err
}

// first is the writer of a request at its key, or of the only one of a call.
type first struct{ *joining }

func (w first) request(ctx context.Context, try bool, ifs []clientv3.Cmp) (*Ticket, commit.Creation, error) {
	q, e := w.Queue, w.epoch
	number, err := e.TakeSlot(ctx, q.numbered)
	if err != nil {
		return nil, commit.Creation{}, err
	}
	slot := keyspace.Slot{Lease: int64(e.Lease()), Number: number, Weight: w.Weight, Try: try}
	stored := engine.Stored{Key: q.Keys.Slot(slot), Next: q.pair.keys(slot)}
	c := &Ticket{Ticket: &engine.Ticket{Queue: q.numbered, Number: number, Note: w.Note, Stored: stored}, queue: q, named: q, call: w.Call, slot: slot, Key: stored.Key}
	tx := w.creation(c, w.value(q.sess.Nonce()), ifs) // with the lease in the key's name the nonce makes the value unique
	q.pair.with(w.joining, c, &tx)
	e.Writes(c.Ticket)
	return c, tx, nil
}

func (w first) sent(c *Ticket, res *commit.Result, seen int64) (oldest int64) {
	w.epoch.Written(c.Ticket, res.Token)
	res.Read = c.takeNext(res.Read)
	return seen + 1 // its nonce is new, so no earlier Txn has written what is found
}

func (w first) drop(c *Ticket, pending *commit.PendingError) {
	if pending != nil {
		w.epoch.Discard(c.Ticket, pending)
		return
	}
	w.epoch.Free(c.Ticket)
}

func (w first) occupied() error { return nil }

func (w first) resolve(ctx context.Context, read []*etcdserverpb.ResponseOp) error {
	if w.ID == "" || len(read[0].GetResponseRange().Kvs) == 0 {
		return errRefused
	}
	owner, live, err := Owners{w.Queue}.ofID(ctx, w.ID)
	if err != nil || !live {
		return err
	}
	return w.freeID(ctx, owner)
}

// value is the value of a request.
func (j *joining) value(nonce string) record.Request {
	return record.Request{
		Nonce: nonce, Owner: j.Queue.sess.Owner(), ID: j.ID, Note: j.Note, AtMS: time.Now().UnixMilli(), MaxHoldMS: j.MaxHold.Milliseconds(),
	}
}

// creation is the Txn that writes a request.
func (j *joining) creation(c *Ticket, value record.Request, ifs []clientv3.Cmp) commit.Creation {
	q, nonce := j.Queue, value.Nonce
	c.nonce = nonce
	tx := commit.Creation{
		Key: c.Key, Value: value.Encode(), If: ifs,
		Mine: func(b []byte) bool {
			found, ok := record.DecodeRequest(b)
			return ok && found.Nonce == nonce
		},
	}
	tx.Together = c.together()
	c.foreign = q.ForeignKeys()
	tx.Read = q.Counts(c.foreign)
	if j.ID != "" {
		key := q.Keys.ID(j.ID)
		c.Also = []string{key}
		value := record.ID{Slot: c.Key, Owner: q.sess.Owner(), Lease: int64(j.epoch.Lease())}.Encode()
		tx.If = append(tx.If, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		tx.Also = []clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(j.epoch.Lease()))}
		tx.Else = []clientv3.Op{clientv3.OpGet(key)}
	}
	return tx
}

// together has the Txn of a request share a Raft entry with those of other queues. All its conditions
// and counts are of its own queue, of what nothing in a group writes, and, for a request that joins a
// total, of the other one of its two queues (S1 in internal/proof/tested-failures.md). An election's is sent
// alone: a process begins few at a time.
func (c *Ticket) together() commit.Together {
	q := c.named
	if len(q.subjects) == 0 {
		return commit.Together{}
	}
	return q.sess.Entering(q.subjects)
}

// admitted reports whether what was read in the Txn that wrote a request shows that it is
// admitted. Counts show it where weights do not matter: with no heavy request in the queue, or
// none but this one. Otherwise the mirror decides.
func (c *Ticket) admitted(ctx context.Context, read []*etcdserverpb.ResponseOp) (bool, error) {
	q := c.queue
	if read == nil {
		return false, nil // settled after a lost answer
	}
	n := q.Counted(c.foreign, read)
	light, others := n.Light, n.Others
	n.Records.At = c.Token
	seen, stored, err := q.Limit.Learn(n.Records)
	if err == nil && !stored { // it was deleted by hand
		_, err = q.Limit.Init(ctx, c.call.Limit, c.call.Rate)
	}
	if err != nil || !stored {
		return false, err
	}
	limit := seen.N
	c.at, c.open = seen.Revs, limit > 0
	q.pair.fill(c, light, others)
	c.found = mirror.Found{Known: true, Ahead: int(light + others - 1), Heavy: others > 0, LimitRev: seen.Revs.Own}
	if rank.TooHeavy(c.slot.Weight, limit) {
		return false, q.tooHeavy(c.slot.Weight, limit)
	}
	if c.slot.Weight == 1 {
		c.atOnce = others == 0 && rank.Fits(light-1, 1, limit)
	} else {
		c.atOnce = others == 1 && rank.Fits(light, c.slot.Weight, limit)
	}
	if !c.atOnce {
		c.next = nil // what was known of the queue was wrong: it waits, and finds that request when it is admitted
	}
	return c.atOnce, nil
}

// oursError says that the ID is that of an earlier request of this session, which is
// on its way out.
type oursError struct{ held *InUse }

func (e *oursError) Error() string { return e.held.Error() }

func asOurs(err error) *oursError {
	ours, _ := errors.AsType[*oursError](err)
	return ours
}

// freeID makes room for a request whose ID is in use, as far as it may. Otherwise it returns an *InUse.
func (j *joining) freeID(ctx context.Context, owner Owner) error {
	q, e := j.Queue, j.epoch
	held := &InUse{Request: owner.Request}
	if e.Ended(owner.Slot.Lease, owner.Key) {
		return &oursError{held}
	}
	if !j.TakeOver {
		if owner.Slot.Lease == int64(e.Lease()) {
			// It may have gone between the read and the look.
			now, live, err := Owners{q}.ofID(ctx, j.ID)
			if err != nil {
				return err
			}
			if !live || now.Create != owner.Create || e.Ended(now.Slot.Lease, now.Key) {
				return &oursError{held}
			}
		}
		held.Request, held.At = owner.shown(ctx)
		return held
	}
	err := Owners{q}.evict(ctx, owner, record.Notice{Cause: record.CauseEvicted, Reason: fmt.Sprintf("taken over with ID %q", j.ID), By: q.sess.Owner()})
	if errors.Is(err, ErrNotHeld) {
		return nil
	}
	return err
}
