package concurrency

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
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// errRefused says that the caller's own conditions were not met.
var errRefused = errors.New("the conditions of the request are not met")

// enqueue writes a request, in one Txn that also reads what shows whether it is admitted at
// once. ifs are conditions of the caller's own. If enqueue fails, no request is left but one
// that is being removed in the background.
func (q *sessionQueue) enqueue(ctx context.Context, e *engine.Epoch, a *attempt, try bool, ifs []clientv3.Cmp) (_ *ticket, admitted bool, err error) {
	var pause commit.Backoff
	var ours *oursError // why the call has waited so far
	defer func() {
		if err != nil && ours != nil && context.Cause(ctx) == errWaited {
			err = ours.held
		}
	}()
	for {
		c, read, outcome, err := q.write(ctx, e, a, try, ifs)
		switch outcome {
		case written:
			admitted, err := q.admitted(ctx, c, read)
			if err != nil {
				e.Withdraw(c.Ticket, q.refusal(c))
				return nil, false, err
			}
			return c, admitted, nil
		case occupied: // with the next name
			continue
		case refused:
		default:
			return nil, false, err
		}
		err = q.resolve(ctx, e, a, read)
		switch afterRefusal(err, a.bounded, len(ifs) > 0) {
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

// write sends the Txn of a request once. Unless the request was written, it also settles the
// ticket, in the background if need be.
func (q *sessionQueue) write(ctx context.Context, e *engine.Epoch, a *attempt, try bool, ifs []clientv3.Cmp) (_ *ticket, read []*etcdserverpb.ResponseOp, _ outcome, _ error) {
	if a.of != nil {
		return q.writeNext(ctx, e, a, try, ifs)
	}
	numbered := q.numbered()
	number, err := e.TakeSlot(ctx, numbered)
	if err != nil {
		return nil, nil, failed, err
	}
	slot := keyspace.Slot{Lease: int64(e.Lease()), Number: number, Weight: a.weight, Try: try}
	stored := engine.Stored{Key: q.keys.Slot(slot), Next: q.nextKeys(slot)}
	c := &ticket{Ticket: &engine.Ticket{Queue: numbered, Number: number, Stored: stored}, queue: q, attempt: a, slot: slot, Key: stored.Key}
	tx := q.creation(e, c, ifs)
	q.withNext(e, c, &tx)
	e.Writes(c.Ticket)
	leave, err := q.turn(ctx, &q.sess.Sending, time.Now())
	if err != nil {
		e.Written(c.Ticket, 0)
		e.Free(c.Ticket)
		return nil, nil, failed, err
	}
	seen := q.sess.Seen()
	res, err := e.Fence().Create(ctx, tx)
	leave()
	e.Written(c.Ticket, res.Token)
	c.Token = res.Token
	res.Read = c.takeNext(res.Read)
	out := outcomeOf(res, err, seen, seen+1) // its nonce is new, so no earlier Txn has written what is found
	switch out {
	case written:
		q.sess.See(res.Token)
	case refused, failed:
		e.Free(c.Ticket)
	case unsettled:
		pending, _ := errors.AsType[*commit.PendingError](err)
		e.Discard(c.Ticket, pending)
	case occupied:
		q.sess.Log().Warn("a foreign key has the name of one of this session's requests; the session uses another name", zap.String("key", c.Key))
		e.Waste(c.Ticket)
	default:
		err = q.lost(e, out)
	}
	return c, res.Read, out, err
}

// lost ends an epoch of which an outcome shows that its lease is lost.
func (q *sessionQueue) lost(e *engine.Epoch, out outcome) error {
	if out == gone {
		e.Gone()
	} else {
		q.sess.Rewind()
		e.Valid()
	}
	return engine.ErrEpoch
}

// creation is the Txn that writes a request.
func (q *sessionQueue) creation(e *engine.Epoch, c *ticket, ifs []clientv3.Cmp) commit.Creation {
	// With the lease in the key's name it makes the value unique.
	nonce := q.sess.Nonce()
	a := c.attempt
	if a.of != nil {
		nonce = a.of.nonce // by which a request is found that one Txn has written with that at the key
	}
	c.nonce = nonce
	value := record.Request{Nonce: nonce, Owner: q.sess.Owner(), ID: a.id, Note: a.note, AtMS: time.Now().UnixMilli()}
	if a.keeper == nil { // a kept request serves several calls, each with a bound of its own
		value.MaxHoldMS = a.maxHold.Milliseconds()
	}
	if a.of != nil {
		value.Of, value.ID = a.of.Key, a.of.attempt.id
	}
	tx := commit.Creation{
		Key: c.Key, Value: value.Encode(), If: ifs,
		Mine: func(b []byte) bool {
			found, ok := record.DecodeRequest(b)
			return ok && found.Nonce == nonce
		},
	}
	tx.Together = c.together()
	c.strays = q.counted()
	tx.Read = q.tallies(c.strays)
	if a.hasID {
		key := q.keys.ID(a.id)
		c.Also = []string{key}
		value := record.ID{Slot: c.Key, Owner: q.sess.Owner(), Lease: int64(e.Lease())}.Encode()
		tx.If = append(tx.If, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		tx.Also = []clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(e.Lease()))}
		tx.Else = []clientv3.Op{clientv3.OpGet(key)}
	}
	return tx
}

// together has the Txn of a request share a Raft entry with those of other queues. All its conditions
// and counts are of its own queue, of what nothing in a group writes, and, for a request that joins a
// total, of the other one of its two queues (S1 in internal/proof/tested-failures.md). An election's is sent
// alone, because a request to step down names a token only.
func (c *ticket) together() commit.Together {
	q := c.queue
	if of := c.attempt.of; of != nil {
		q = of.queue
	}
	if len(q.subjects) == 0 {
		return commit.Together{}
	}
	return q.sess.Entering(q.subjects)
}

// admitted reports whether what was read in the Txn that wrote a request shows that it is
// admitted. Counts show it where weights do not matter: with no heavy request in the queue, or
// none but this one. Otherwise the mirror decides.
func (q *sessionQueue) admitted(ctx context.Context, c *ticket, read []*etcdserverpb.ResponseOp) (bool, error) {
	if read == nil {
		return false, nil // settled after a lost answer
	}
	n := q.tally(c.strays, read)
	light, others := n.light, n.others
	seen, stored, err := q.limit.Learn(n.records)
	if err == nil && !stored { // it was deleted by hand
		_, err = q.limit.InitRate(ctx, c.attempt.limit, c.attempt.rate)
	}
	if err != nil || !stored {
		return false, err
	}
	limit := seen.N
	c.at, c.open = seen.Revs, limit > 0
	q.fill(c, light, others)
	c.found = mirror.Found{Known: true, Ahead: int(light + others - 1), Heavy: others > 0, LimitRev: seen.Revs.Own}
	if queue.TooHeavy(c.slot.Weight, limit) {
		return false, tooHeavy(q.level(), c.slot.Weight, limit)
	}
	if c.slot.Weight == 1 {
		c.atOnce = others == 0 && queue.Fits(light-1, 1, limit)
	} else {
		c.atOnce = others == 1 && queue.Fits(light, c.slot.Weight, limit)
	}
	return c.atOnce, nil
}

// oursError says that the ID is that of an earlier request of this session, which is
// on its way out.
type oursError struct{ held *HeldError }

func (e *oursError) Error() string { return e.held.Error() }

func asOurs(err error) *oursError {
	ours, _ := errors.AsType[*oursError](err)
	return ours
}

// resolve looks at why a request was refused by its conditions. It returns nil if it
// is worth asking again at once, an *oursError if it is in a moment, errRefused if the
// caller's own conditions were not met, or a *HeldError.
func (q *sessionQueue) resolve(ctx context.Context, e *engine.Epoch, a *attempt, read []*etcdserverpb.ResponseOp) error {
	if a.of != nil {
		return q.disproved(ctx, a.of)
	}
	if !a.hasID || len(read[0].GetResponseRange().Kvs) == 0 {
		return errRefused
	}
	owner, live, err := q.ownerOf(ctx, a.id)
	if err != nil || !live {
		return err
	}
	return q.freeID(ctx, e, a, owner)
}

// freeID makes room for a request whose ID is in use, as far as it may.
func (q *sessionQueue) freeID(ctx context.Context, e *engine.Epoch, a *attempt, owner owner) error {
	held := &HeldError{Name: q.name, ID: a.id, Request: describe(owner.Request)}
	if e.Ended(owner.Slot.Lease, owner.Key) {
		return &oursError{held}
	}
	if !a.takeOver {
		if owner.Slot.Lease == int64(e.Lease()) {
			// It may have gone between the read and the look.
			now, live, err := q.ownerOf(ctx, a.id)
			if err != nil {
				return err
			}
			if !live || now.Create != owner.Create || e.Ended(now.Slot.Lease, now.Key) {
				return &oursError{held}
			}
		}
		held.Request = owner.described(ctx)
		return held
	}
	err := q.evict(ctx, owner, record.Notice{Cause: record.CauseEvicted, Reason: fmt.Sprintf("taken over with ID %q", a.id), By: q.sess.Owner()})
	if errors.Is(err, ErrNotHeld) {
		return nil
	}
	return err
}
