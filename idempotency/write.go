package idempotency

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// write writes the outcome. again reports that a later try may succeed.
func (o *settlement) write(ctx context.Context) (err error, again bool) {
	a, own, s := o.a, &o.a.own, o.a.store
	if err := own.resolve(ctx); err != nil && o.state != "" {
		return err, !errors.Is(err, ErrFenced)
	}
	switch o.state {
	case "":
		return o.abandon(ctx)
	case record.AttemptReleased:
		return o.release(ctx)
	}
	o.asked = now()
	parts, pool := o.prepare(), s.retention.of(a.set.Retain)
	s.space.writes(1+len(parts), max(len(o.text), o.rec.Size))
	for ; ; o.asked = now() {
		lease, err := o.leaseOf(ctx, pool, 1+len(parts), o.asked)
		if err != nil {
			return err, true
		}
		if err := o.apart(ctx, lease.id, len(parts)); err != nil {
			return err, true
		}
		res := commit.Amending{Outcome: commit.LeaseGone}
		k := kept{kv: s.sess.KV(), entry: a.entry, text: o.text, mod: own.mod, token: a.token, parts: parts}
		_, err = k.putParts(ctx, lease)
		switch {
		case err == nil: // also if the record was changed: writing it will show that
			res, err = o.writeRecord(ctx, lease, len(parts) > 0)
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			err = nil
		}
		switch {
		case errors.Is(err, errRejected):
			return err, false
		case commit.TooLarge(err) && !o.rec.Omitted:
			parts = o.leaveOut(err)
			continue
		case err != nil:
			return err, true
		}
		switch res.Outcome {
		case commit.Amended:
			return o.written(ctx, k, lease, res)
		case commit.Unmet:
			own.mod = res.Mod
			return errUnmet, false
		case commit.Overtaken:
			if !own.regained(res.Found) {
				return &fencedError{res.Found}, false
			}
			o.doubt = false
			continue
		}
		if ours, err := o.isGone(ctx, lease); !ours {
			return err, !errors.Is(err, errRejected)
		}
		pool.forget(lease)
	}
}

// leaseOf returns a lease for n keys: that of the try before, as long as the pool assigns it. Each try would use up others, and
// an outcome that etcd denies is tried for as long as the session is open.
func (o *settlement) leaseOf(ctx context.Context, pool *pool, n int, at moment) (*pooled, error) {
	if o.lease != nil && n <= o.places && pool.assigns(o.lease, at) {
		return o.lease, nil
	}
	o.giveBack(pool)
	lease, err := pool.takeAt(ctx, n, at)
	if err == nil {
		o.lease, o.places = lease, n
	}
	return lease, err
}

// giveBack returns the places of a lease on which there is nothing, nor will be.
func (o *settlement) giveBack(pool *pool) {
	if o.lease == nil || o.doubt || o.placed {
		return
	}
	left := 0
	if o.partly == o.lease.id { // parts were put
		left = o.places - 1
	}
	pool.giveAll(o.lease, o.places, left)
	o.lease = nil
}

// written keeps what k is about for as long as its pool says, once the record of the outcome was written.
func (o *settlement) written(ctx context.Context, k kept, lease *pooled, res commit.Amending) (err error, again bool) {
	if o.placed = true; res.Found != nil {
		k.parts = o.found(res.Found)
		k.text = o.text
	}
	err = k.prolong(ctx, o.a.store.retention.of(o.a.set.Retain), lease, res)
	return err, err != nil
}

// apart shuts out late copies of parts that an earlier try has put on another lease: one would move its part there, which
// may expire before the outcome. The record is put again as it is.
func (o *settlement) apart(ctx context.Context, lease clientv3.LeaseID, parts int) error {
	own := &o.a.own
	if before := own.rec.Encode(); parts > 0 && o.partly != 0 && o.partly != lease {
		res, err := own.put(ctx, before, before)
		if err != nil {
			return err
		}
		if res.Outcome == commit.Amended { // otherwise writing the outcome shows what is there
			own.mod, o.doubt = res.Mod, false
		}
	}
	if o.partly = 0; parts > 0 {
		o.partly = lease
	}
	return nil
}

// writeRecord writes the record of the outcome, with what is attached. It
// returns errRejected if etcd refuses what is attached. If parts were put, a late copy of one may be under way.
func (o *settlement) writeRecord(ctx context.Context, lease *pooled, parts bool) (commit.Amending, error) {
	a, own, s, attached := o.a, &o.a.own, o.a.store, len(o.ifs)+len(o.then) > 0
	then := []clientv3.Op{commit.Put(a.entry.Record, o.text, lease.id)}
	var together commit.Together
	if !attached && !o.alone { // attached operations may concern any key
		together = s.together(a.entry)
	}
	res, err := commit.Amend(ctx, s.sess.KV(), commit.Amendment{
		Key: a.entry.Record, Mod: own.mod, If: o.ifs, Then: append(then, o.then...),
		Mine: o.wrote,
		Same: func() clientv3.Op {
			return clientv3.OpPut(a.entry.Record, own.rec.Encode(), clientv3.WithLease(a.work.id))
		},
		Together: together, Doubt: o.doubt || parts, // of a part, too: until the record is put again
	})
	o.doubt = o.doubt || res.Doubt
	if err == nil {
		if res.Outcome == commit.Amended {
			s.reader.saw(res.Mod, o.asked)
		}
		return res, nil
	}
	o.alone = rejects(err) || commit.Denied(err)
	if attached && rejects(err) {
		err = fmt.Errorf("%w: %w", errRejected, err)
	}
	return res, err
}

// isGone reports whether the lease of the outcome does not exist. If it does, a lease in an attached
// operation does not, and the error is errRejected.
func (o *settlement) isGone(ctx context.Context, lease *pooled) (bool, error) {
	if len(o.then) == 0 {
		return true, nil
	}
	call, cancel := commit.Call(ctx)
	defer cancel()
	ours, err := o.a.store.sess.Etcd().TimeToLive(call, lease.id)
	if err == nil && ours.TTL > 0 {
		err = fmt.Errorf("%w: %w", errRejected, rpctypes.ErrLeaseNotFound)
	}
	return err == nil, err
}

// rejects reports whether etcd will refuse the Txn at each try. What it denies it may allow later: that says
// nothing of what is attached.
func rejects(err error) bool {
	if commit.TooLarge(err) {
		return true
	}
	known, ok := errors.AsType[rpctypes.EtcdError](err)
	return ok && known.Code() == codes.InvalidArgument && !commit.Denied(err)
}

// release releases the key. It deletes the record, or, if recovery points or (after the function has
// run) the payload's fingerprint have to be kept, marks it as released. If etcd is out of space, a
// fingerprint alone is not kept: a release must succeed.
func (o *settlement) release(ctx context.Context) (err error, again bool) {
	a, s, r := o.a, o.a.store, *o.a.own.rec
	steps := len(r.Body) > 0
	r.State = record.AttemptReleased
	text := r.Encode()
	free := commit.Amendment{
		Key: a.entry.Record, Mod: a.own.mod, Then: []clientv3.Op{clientv3.OpDelete(a.entry.Record)}, Doubt: o.doubt,
		Mine: func(kv *mvccpb.KeyValue) bool { return kv == nil || o.ran && string(kv.Value) == text },
	}
	var res commit.Amending
	var lease *pooled
	kv, pool := s.sess.KV(), s.retention.of(a.set.Retain)
	if steps || o.ran {
		if lease, err = o.leaseOf(ctx, pool, 1, now()); err == nil {
			s.space.writes(1, len(text))
			keep := free
			keep.Then = []clientv3.Op{clientv3.OpPut(a.entry.Record, text, clientv3.WithLease(lease.id))}
			keep.Mine = func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == text }
			res, err = commit.Amend(ctx, kv, keep)
		}
	}
	if !steps && (!o.ran || errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace)) {
		lease, o.doubt = nil, o.doubt || res.Doubt
		free.Doubt = o.doubt
		res, err = commit.Amend(ctx, kv, free)
	}
	o.doubt = o.doubt || res.Doubt
	switch {
	case err != nil:
		return err, true
	case res.Outcome == commit.Amended:
		if lease == nil {
			o.giveBack(pool)
			return nil, false
		}
		o.placed = true
		k := kept{kv: kv, entry: a.entry, text: []byte(text)}
		err := k.prolong(ctx, pool, lease, res)
		return err, err != nil
	case res.Outcome == commit.LeaseGone:
		pool.forget(lease)
		return rpctypes.ErrLeaseNotFound, true
	case a.own.regained(res.Found):
		o.doubt = false
		return o.release(ctx)
	case o.doubt && a.epoch.Valid() && errors.Is(a.Err(), ErrSettled):
		return nil, false // no other attempt can have begun until then, so this one has released it
	}
	return &fencedError{res.Found}, false
}

// abandon has the record say that the attempt is lost.
func (o *settlement) abandon(ctx context.Context) (err error, again bool) {
	own := &o.a.own
	o.gone = own.rec.State == record.AttemptLost // after MaxExecution
	if err = own.lose(ctx); errors.Is(err, ErrFenced) {
		o.gone, o.fenced, err = true, true, nil
	}
	return err, err != nil
}
