package concurrency

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// owner is a live request of any session, found by its ID or token.
type owner struct {
	mirror.Request
	queue *sessionQueue
	also  []string // its ID key
}

// owners are the live requests of any session in one queue, as operators name them.
type owners struct{ queue *sessionQueue }

// described describes the request as Status does: with a total, one that holds there has the token of
// its permit.
func (o owner) described(ctx context.Context) Request {
	d, q := describe(o.Request), o.queue
	if q.pair == nil {
		return d
	}
	b, err := q.pair.read(ctx)
	if err != nil || !b.shared {
		return d
	}
	d.WaitsFor = LevelKey
	if slices.ContainsFunc(b.at.Holders, func(r mirror.Request) bool { return r.Create == o.Create }) {
		d.WaitsFor = LevelTotal
		if t := q.pair.next(b.all.Holders, o.Request); t != nil {
			d.Token, d.WaitsFor = t.Create, ""
		}
	}
	return d
}

// ofID finds the live request with an ID. An ID key whose request is gone,
// because it was deleted by hand, is removed.
func (s owners) ofID(ctx context.Context, id string) (o owner, live bool, err error) {
	q := s.queue
	idKey := q.Keys.ID(id)
	kvs, err := q.sess.Get(ctx, idKey)
	if err != nil || len(kvs) == 0 {
		return owner{}, false, err
	}
	born := kvs[0].CreateRevision
	rec, readable := record.DecodeID(kvs[0].Value)
	slot, ours := q.Keys.ParseSlot(rec.Slot)
	if !readable {
		return owner{}, false, errID
	}
	if ours {
		kvs, err := q.sess.Get(ctx, rec.Slot)
		if err != nil {
			return owner{}, false, err
		}
		// Both keys were created in one Txn.
		if len(kvs) == 1 && kvs[0].CreateRevision == born {
			return owner{Request: mirror.NewRequest(slot, kvs[0]), queue: q, also: []string{idKey}}, true, nil
		}
	}
	_, err = q.sess.Remove(ctx, engine.Stored{Key: idKey, Token: born})
	return owner{}, false, err
}

// withToken finds the live request with a token.
func (s owners) withToken(ctx context.Context, token int64) (owner, bool, error) {
	q := s.queue
	r, found, err := q.Find(ctx, token)
	o := owner{Request: r, queue: q}
	if err == nil && !found && q.pair != nil { // a permit's token is that of its request in the total
		if r, found, err = q.pair.total.Find(ctx, token); found {
			o, found, err = owners{q.pair.total}.atKey(ctx, r)
			found = found && o.queue == q
		}
	} else if err == nil && found && q.limiter != nil {
		o, found, err = s.atKey(ctx, r)
	}
	if err != nil || !found {
		return owner{}, false, err
	}
	id := o.Record().ID
	if id == "" {
		return o, true, nil
	}
	// The ID in the value may not be exact (JSON has text only), and the key of another
	// request must not be removed.
	idKey := o.queue.Keys.ID(id)
	kvs, err := q.sess.Get(ctx, idKey)
	if err == nil && len(kvs) == 1 && kvs[0].CreateRevision == o.Create {
		o.also = []string{idKey}
	}
	return o, true, err
}

// atKey finds the request at a key to which one in the queue of the total belongs.
func (s owners) atKey(ctx context.Context, r mirror.Request) (owner, bool, error) {
	q := s.queue
	of := r.Record().Of
	key, ok := q.limiter.keys.ParseKey(of)
	if !ok {
		return owner{}, false, nil
	}
	at := q.limiter.Key(key).queue
	slot, ok := at.Keys.ParseSlot(of)
	if !ok || slot.Lease != r.Slot.Lease || slot.Number != r.Slot.Number {
		return owner{}, false, nil
	}
	kvs, err := q.sess.Get(ctx, of)
	if err != nil || len(kvs) == 0 || kvs[0].CreateRevision > r.Create {
		return owner{}, false, err
	}
	return owner{Request: mirror.NewRequest(slot, kvs[0]), queue: at}, true, nil
}

// evict removes an owner's request and leaves the notice. It returns ErrNotHeld if the request
// is gone already.
func (s owners) evict(ctx context.Context, o owner, n record.Notice) error {
	removal, err := s.queue.sess.Evict(ctx, engine.Stored{Key: o.Key, Token: o.Create, Also: o.also, Next: o.queue.pair.keys(o.Slot)}, o.Slot.Lease, n)
	if err == nil && removal == commit.Absent {
		return ErrNotHeld
	}
	return err
}

// evictFound finds a request and evicts it. which names it in an error.
func (s owners) evictFound(ctx context.Context, which string, find func(context.Context) (owner, bool, error), n record.Notice) error {
	q, err := s.queue, engine.CheckReason(n.Reason)
	if err == nil {
		n.By = q.sess.Owner()
		err = q.do(ctx, func(ctx context.Context) error {
			o, live, err := find(ctx)
			if err == nil && !live {
				err = ErrNotHeld
			}
			if err != nil {
				return err
			}
			return s.evict(ctx, o, n)
		})
	}
	if err != nil {
		return q.failed(fmt.Sprintf("%s %s of", doing(n), which), err)
	}
	return nil
}

// doing names what a notice does.
func doing(n record.Notice) string {
	if n.Cause == record.CauseReleased {
		return "release"
	}
	return "evict"
}

// endID ends the request with an ID, and only the one with this token, if that is not nil.
func (s owners) endID(ctx context.Context, id string, only *int64, n record.Notice) error {
	if err := keyspace.CheckID(id); err != nil {
		return s.queue.failed(doing(n), invalid("the ID %w", err))
	}
	return s.evictFound(ctx, fmt.Sprintf("ID %q", id), func(ctx context.Context) (owner, bool, error) {
		o, live, err := s.ofID(ctx, id)
		if only == nil || err != nil || !live {
			return o, live, err
		}
		named, live, err := s.withToken(ctx, *only)
		return o, live && named.Key == o.Key && named.Create == o.Create, err
	}, n)
}

// releaseID ends a request by its ID as released.
func (s owners) releaseID(ctx context.Context, id string, opts []ReleaseOption) error {
	var r releasing
	if err := engine.Apply(opts, &r); err != nil {
		return s.queue.failed("release", err)
	}
	return s.endID(ctx, id, r.only, record.Notice{Cause: record.CauseReleased})
}

func (s owners) endToken(ctx context.Context, token int64, n record.Notice) error {
	return s.evictFound(ctx, fmt.Sprintf("token %d", token), func(ctx context.Context) (owner, bool, error) { return s.withToken(ctx, token) }, n)
}

var errID = errors.New("the ID's record in etcd cannot be read: it is damaged, or of a later release")
