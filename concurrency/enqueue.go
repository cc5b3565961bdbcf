package concurrency

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// enqueue writes a request, in one Txn that also reads what tells whether it is
// admitted at once. If it fails, nothing is left but what is being removed in the
// background.
func (g *gate) enqueue(ctx context.Context, e *epoch, r request, ifs ...clientv3.Cmp) (c *claim, admitted bool, err error) {
	return g.put(ctx, e, r, false, ifs)
}

// errRefused says that the caller's own conditions were not met.
var errRefused = errors.New("the conditions of the request are not met")

func (g *gate) put(ctx context.Context, e *epoch, r request, try bool, ifs []clientv3.Cmp) (_ *claim, _ bool, err error) {
	var pause commit.Backoff
	var ours *oursError // why the call has waited so far
	defer func() {
		if err != nil && ours != nil && context.Cause(ctx) == errWaited {
			err = ours.held
		}
	}()
	for {
		number, err := e.slots.take(ctx, g.keys.Range)
		if err != nil {
			return nil, false, err
		}
		slot := keyspace.Slot{Lease: e.lease.ID(), Number: number, Weight: r.weight, Try: try}
		c := &claim{ticket: &ticket{queue: g.keys.Range, number: number, key: g.keys.Slot(slot)}, gate: g, request: r, slot: slot}
		tx := g.creation(e, c, ifs)
		e.name(c.ticket)
		leave, err := g.turn(ctx, &g.sess.sending, time.Now())
		if err != nil {
			e.roll.created(c.ticket, 0)
			e.freeSlot(c.ticket)
			return nil, false, err
		}
		seen := g.sess.seen.Load()
		res, err := e.fence.Create(ctx, tx)
		leave()
		e.roll.created(c.ticket, res.Token)
		var pending *commit.PendingError
		switch {
		case errors.As(err, &pending):
			// The slot stays taken until it is certain what became of it.
			// If the lease is lost before, its end settles it.
			e.slots.deletes(c.ticket)
			if !g.sess.background(func() {
				if err := pending.Discard(e.ctx, c.also...); err == nil {
					e.freeSlot(c.ticket)
				}
			}) {
				pending.Abandon()
			}
			return nil, false, err
		case errors.Is(err, commit.ErrOccupied):
			g.sess.log.Warn("a foreign key has the name of one of this session's requests; the session uses another name", zap.String("key", c.key))
			e.wasteSlot(c.ticket)
			continue // with the next one
		case errors.Is(err, commit.ErrGone):
			e.lease.Lose(errPresence)
			e.valid()
			return nil, false, errEpoch
		case err != nil:
			e.freeSlot(c.ticket)
			return nil, false, err
		case res.Token == 0:
			e.freeSlot(c.ticket)
			switch err := g.resolve(ctx, e, r, res.Read); {
			case err == nil:
			case err == errRefused && len(ifs) == 0: // what stood in the way is gone again
			case asOurs(err) != nil && !r.bounded:
				ours = asOurs(err)
				if err := pause.Wait(ctx, nil); err != nil {
					return nil, false, err
				}
			default:
				return nil, false, err
			}
			continue
		}
		if res.Token <= seen {
			g.sess.rewound()
			e.valid()
			return nil, false, errEpoch
		}
		g.sess.see(res.Token)
		admitted, err := g.admitted(ctx, c, res.Read)
		if err != nil {
			g.withdrawLater(e, c)
			return nil, false, err
		}
		return c, admitted, nil
	}
}

// creation is the Txn that writes a request.
func (g *gate) creation(e *epoch, c *claim, ifs []clientv3.Cmp) commit.Creation {
	// With the lease in the key's name, a count makes the value unique.
	nonce := strconv.FormatUint(g.sess.nonces.Add(1), 36)
	r := c.request
	value := record.Request{Nonce: nonce, Holder: g.sess.opts.Holder, ID: r.id, Note: r.note, AtMS: nowMS()}
	tx := commit.Creation{
		Key: c.key, Value: value.Encode(), If: ifs,
		Mine: func(b []byte) bool {
			found, ok := record.DecodeRequest(b)
			return ok && found.Nonce == nonce
		},
		Read: []clientv3.Op{clientv3.OpGet(g.keys.Light, clientv3.WithPrefix(), clientv3.WithCountOnly())},
	}
	if g.fixed == 0 {
		// The limit, and the number of the heavy requests.
		tx.Read = append(tx.Read, clientv3.OpGet(g.keys.Limit, clientv3.WithRange(g.keys.Light), clientv3.WithLimit(1)))
	}
	c.strays = g.counted()
	tx.Read = append(tx.Read, readStrays(c.strays)...)
	if r.hasID {
		key := g.keys.ID(r.id)
		c.also = []string{key}
		value := record.ID{Slot: c.key, Holder: g.sess.opts.Holder, Lease: e.lease.ID()}.Encode()
		tx.If = append(tx.If, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		tx.Also = []clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(clientv3.LeaseID(e.lease.ID())))}
		tx.Else = []clientv3.Op{clientv3.OpGet(key)}
	}
	return tx
}

// admitted tells whether what was read in the Txn that wrote a request shows it
// admitted. Counts say it where weights do not matter: with no heavy request in
// the queue, or none but this one. Otherwise the mirror will tell.
func (g *gate) admitted(ctx context.Context, c *claim, read []*etcdserverpb.ResponseOp) (bool, error) {
	if read == nil {
		return false, nil // settled after a lost answer
	}
	strayLight, strayOthers := g.uncount(c.strays, read[len(read)-len(c.strays):])
	light := read[0].GetResponseRange().Count - strayLight
	if g.fixed > 0 {
		c.found = mirror.Found{Known: true, Ahead: int(light - 1)}
		return queue.Fits(light-1, 1, g.fixed), nil
	}
	// The limit comes first, then the heavy requests.
	stored := read[1].GetResponseRange().Kvs
	if len(stored) == 0 || string(stored[0].Key) != g.keys.Limit { // it was deleted by hand
		_, err := g.storeLimit(ctx, c.request.limit)
		return false, err
	}
	seen, err := g.learnLimit(stored[0])
	if err != nil {
		return false, err
	}
	limit := seen.limit
	others := read[1].GetResponseRange().Count - 1 - strayOthers // etcd counts beyond the limit of a read
	c.found = mirror.Found{Known: true, Ahead: int(light + others - 1), Heavy: others > 0, LimitRev: stored[0].ModRevision}
	if limit > 0 && c.slot.Weight > limit {
		return false, g.tooHeavy(c.slot.Weight, limit)
	}
	if c.slot.Weight == 1 {
		return others == 0 && queue.Fits(light-1, 1, limit), nil
	}
	return others == 1 && queue.Fits(light, c.slot.Weight, limit), nil
}

// oursError says that the ID is that of an earlier request of this session, which is
// on its way out.
type oursError struct{ held *HeldError }

func (e *oursError) Error() string { return e.held.Error() }

func asOurs(err error) *oursError {
	var ours *oursError
	errors.As(err, &ours)
	return ours
}

// resolve looks at why a request was refused by its conditions. It returns nil if it
// is worth asking again at once, an *oursError if it is in a moment, errRefused if the
// caller's own conditions were not met, or a *HeldError.
func (g *gate) resolve(ctx context.Context, e *epoch, r request, read []*etcdserverpb.ResponseOp) error {
	if !r.hasID || len(read[0].GetResponseRange().Kvs) == 0 {
		return errRefused
	}
	owner, live, err := g.ownerOf(ctx, r.id)
	if err != nil || !live {
		return err
	}
	return g.claimID(ctx, e, r, owner)
}

// claimID makes room for a request whose ID is in use, as far as it may.
func (g *gate) claimID(ctx context.Context, e *epoch, r request, owner owner) error {
	held := &HeldError{Name: g.name, ID: r.id, Owner: owner.describe()}
	if e.gone(owner) {
		return &oursError{held}
	}
	if !r.takeOver {
		if owner.Slot.Lease == e.lease.ID() {
			// It may have gone between the read and the look.
			now, live, err := g.ownerOf(ctx, r.id)
			if err != nil {
				return err
			}
			if !live || now.Create != owner.Create || e.gone(now) {
				return &oursError{held}
			}
		}
		return held
	}
	err := g.evict(ctx, owner, record.Notice{Cause: record.CauseEvicted, Reason: fmt.Sprintf("taken over with ID %q", r.id), By: g.sess.opts.Holder})
	if errors.Is(err, ErrNotHeld) {
		return nil
	}
	return err
}
