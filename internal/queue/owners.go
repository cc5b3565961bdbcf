package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// How sessions find and end each other's requests.

// ErrNotHeld: no live request has this ID or token.
var ErrNotHeld = errors.New("no such request")

var errID = errors.New("the request with the ID cannot be found")

// Owners are the live requests of any session in one queue, as operators and other sessions name them.
type Owners struct{ *Queue }

// Owner is a live request of any session, found by its ID or token.
type Owner struct {
	mirror.Request
	queue *Queue
	also  []string // its ID key
}

// shown returns the request as State shows it: with a total, one that holds there has the token of its permit. at is
// the level at which it waits, empty if it holds or there is one level only.
func (o Owner) shown(ctx context.Context) (_ mirror.Request, at Level) {
	if o.queue.pair == nil {
		return o.Request, ""
	}
	st, err := o.queue.pair.state(ctx)
	if err != nil || !st.Total {
		return o.Request, ""
	}
	own := func(r mirror.Request) bool { return r.Key == o.Key }
	if i := slices.IndexFunc(st.Holders, own); i >= 0 {
		return st.Holders[i], ""
	}
	if i := slices.IndexFunc(st.Waiters, own); i >= 0 && i < st.Joins {
		return o.Request, AtTotal
	}
	return o.Request, AtKey
}

// ofID finds the live request with an ID. An ID key whose request is gone,
// because it was deleted by hand, is removed.
func (q Owners) ofID(ctx context.Context, id string) (o Owner, live bool, err error) {
	idKey := q.Keys.ID(id)
	kvs, err := q.sess.Get(ctx, idKey)
	if err != nil || len(kvs) == 0 {
		return Owner{}, false, err
	}
	born := kvs[0].CreateRevision
	rec, readable := record.DecodeID(kvs[0].Value)
	slot, ours := q.Keys.ParseSlot(rec.Slot)
	if !readable {
		return Owner{}, false, fmt.Errorf("%w: %w", errID, record.Why(idKey, kvs[0].Value))
	}
	if ours {
		kvs, err := q.sess.Get(ctx, rec.Slot)
		if err != nil {
			return Owner{}, false, err
		}
		// Both keys were created in one Txn.
		if len(kvs) == 1 && kvs[0].CreateRevision == born {
			return Owner{Request: mirror.NewRequest(slot, kvs[0]), queue: q.Queue, also: []string{idKey}}, true, nil
		}
	}
	_, err = q.sess.Remove(ctx, engine.Stored{Key: idKey, Token: born})
	return Owner{}, false, err
}

// withToken finds the live request with a token.
func (q Owners) withToken(ctx context.Context, token int64) (Owner, bool, error) {
	r, found, err := q.Find(ctx, token)
	o := Owner{Request: r, queue: q.Queue}
	if err == nil && !found && q.pair != nil { // a permit's token is that of its request in the total
		if r, found, err = q.pair.total.Find(ctx, token); found {
			o, found, err = Owners{q.pair.total}.requestAtKey(ctx, r)
			found = found && o.queue.is(q.Queue)
		}
	} else if err == nil && found && q.atKey != nil {
		o, found, err = q.requestAtKey(ctx, r)
	}
	if err != nil || !found {
		return Owner{}, false, err
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

// requestAtKey finds the request at a key to which one in the queue of the total belongs.
func (q Owners) requestAtKey(ctx context.Context, r mirror.Request) (Owner, bool, error) {
	of := r.Record().Of
	at := q.atKey(of)
	if at == nil {
		return Owner{}, false, nil
	}
	slot, ok := at.Keys.ParseSlot(of)
	if !ok || slot.Lease != r.Slot.Lease || slot.Number != r.Slot.Number {
		return Owner{}, false, nil
	}
	kvs, err := q.sess.Get(ctx, of)
	if err != nil || len(kvs) == 0 || kvs[0].CreateRevision > r.Create {
		return Owner{}, false, err
	}
	return Owner{Request: mirror.NewRequest(slot, kvs[0]), queue: at}, true, nil
}

// evict removes an owner's request and leaves the notice. It returns ErrNotHeld if the request
// is gone already.
func (q Owners) evict(ctx context.Context, o Owner, n record.Notice) error {
	removal, err := q.sess.Evict(ctx, engine.Stored{Key: o.Key, Token: o.Create, Also: o.also, Next: o.queue.pair.keys(o.Slot)}, o.Slot.Lease, n)
	if err == nil && removal == commit.Absent {
		return ErrNotHeld
	}
	return err
}

// holderWith finds the request that holds a permit with a token. A permit of the key of a limiter with a
// total is held in the total, and its session knows it by the request at the key.
func (q Owners) holderWith(ctx context.Context, token int64) (r mirror.Request, holds bool, err error) {
	in := q.last()
	v, err := in.Read(ctx)
	if err != nil {
		return mirror.Request{}, false, err
	}
	at := slices.IndexFunc(v.Holders, func(r mirror.Request) bool { return r.Create == token })
	if at < 0 {
		return mirror.Request{}, false, nil
	}
	if in.atKey == nil {
		return v.Holders[at], true, nil
	}
	o, found, err := Owners{in}.requestAtKey(ctx, v.Holders[at])
	return o.Request, found && (in == q.Queue || o.queue.is(q.Queue)), err
}

// EndID ends the live request with an ID, and only the one with this token, if that is not nil. It returns
// ErrNotHeld if there is none.
func (q Owners) EndID(ctx context.Context, id string, only *int64, n record.Notice) error {
	o, live, err := q.ofID(ctx, id)
	if only == nil || err != nil || !live {
		return q.end(ctx, o, live, err, n)
	}
	named, live, err := q.withToken(ctx, *only)
	return q.end(ctx, o, live && named.Key == o.Key && named.Create == o.Create, err, n)
}

// EndToken ends the live request with a token. It returns ErrNotHeld if there is none.
func (q Owners) EndToken(ctx context.Context, token int64, n record.Notice) error {
	o, live, err := q.withToken(ctx, token)
	return q.end(ctx, o, live, err, n)
}

// end ends a request that was looked for.
func (q Owners) end(ctx context.Context, o Owner, live bool, err error, n record.Notice) error {
	switch {
	case err != nil:
		return err
	case !live:
		return ErrNotHeld
	}
	return q.evict(ctx, o, n)
}

// RequestStop asks the live request with a token to end. It returns ErrNotHeld if there is none.
func (q Owners) RequestStop(ctx context.Context, token int64, reason string) error {
	r, live, err := q.holderWith(ctx, token)
	if err == nil && !live {
		var waiter Owner
		waiter, live, err = q.withToken(ctx, token)
		r = waiter.Request
	}
	if err == nil && live {
		live, err = q.AskToStop(ctx, r, reason)
	}
	if err == nil && !live {
		err = ErrNotHeld
	}
	return err
}

// AskToStop stores that a request is asked to end, and reports whether it was live then.
func (q Owners) AskToStop(ctx context.Context, r mirror.Request, reason string) (bool, error) {
	n := record.Notice{Cause: record.CauseStop, Reason: reason, By: engine.Author(ctx, q.sess)}
	key := q.sess.Space().Session(r.Slot.Lease).Stop(r.Create, r.Key)
	put := clientv3.OpPut(key, n.Encode(), clientv3.WithLease(clientv3.LeaseID(r.Slot.Lease)))
	return commit.PutBeside(ctx, q.sess.KV(), r.Key, r.Create, put)
}
