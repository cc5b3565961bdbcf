package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// How an operator changes the record of a request that has no attempt in progress.

// entryOf returns the keys of a record.
func entryOf(keys keyspace.Store, ref Ref) (keyspace.Entry, error) {
	e, ok := keys.Ref(string(ref))
	if !ok {
		return e, invalid("%q is not a reference (Store.Ref, Record.Ref)", string(ref))
	}
	return e, nil
}

// find returns what a majority has of a record that exists.
func find(ctx context.Context, s *Store, ref Ref) (keyspace.Entry, state, error) {
	e, err := entryOf(s.keys, ref)
	if err == nil {
		err = s.closed()
	}
	if err != nil {
		return e, state{}, err
	}
	st, err := s.reader.read(ctx, e, true, 0)
	if err == nil && st.kv == nil {
		err = ErrNotFound
	}
	return e, st, err
}

// operator is one call of an operator's about a record.
type operator struct {
	*Store
	change // its options
	entry  keyspace.Entry
	st     state // as the call has read it
}

// operatorOf finds the record that a call with these options is to change. They may exclude it, as an attempt
// in progress does.
func operatorOf(ctx context.Context, s *Store, ref Ref, opts []ChangeOption) (o operator, err error) {
	o.Store = s
	if err = engine.Apply(opts, &o.change); err != nil {
		return o, err
	}
	if o.entry, o.st, err = find(ctx, s, ref); err == nil {
		err = o.allows(o.st)
	}
	if r := o.st.rec; err == nil && o.st.live {
		err = &InProgressError{Key: Key{Scope: r.Scope, Op: r.Op}, Owner: r.Owner, Attempt: r.Number, RetryAfter: s.expiries.retryAfter(ctx, r.Lease)}
	}
	return o, err
}

// delete deletes the record.
func (o operator) delete(ctx context.Context) error {
	if err := o.spares(ctx, o.sess, o.st); err != nil {
		return err
	}
	_, err := o.amend(ctx, func(kv *mvccpb.KeyValue) bool { return kv == nil },
		clientv3.OpDelete(o.entry.Record), clientv3.OpDelete(o.entry.AllResults(), clientv3.WithPrefix()))
	return err
}

// resolve records what the operator has found out.
func (o operator) resolve(ctx context.Context, what Resolution) error {
	err := o.resolves(what, o.st)
	if err == nil && what.state == record.AttemptReleased {
		err = o.spares(ctx, o.sess, o.st)
	}
	if err != nil {
		return err
	}
	text, err := what.text(ctx, o)
	if err != nil {
		return err
	}
	if !o.st.lost() {
		_, err := o.put(ctx, text, clientv3.LeaseID(o.st.kv.Lease)) // kept as long as what it corrects
		return err
	}
	unknown, err := o.keptUnknown(ctx)
	if err != nil {
		return err
	}
	pool := o.retention.of(cmp.Or(unknown, o.opts.Retain))
	for {
		lease, err := pool.take(ctx, 1)
		if err != nil {
			return err
		}
		res, err := o.put(ctx, text, lease.id)
		switch {
		case err == nil:
			k := kept{kv: o.sess.KV(), entry: o.entry, text: []byte(text)}
			return k.prolong(ctx, pool, lease, commit.Amending{Mod: res.Mod})
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			pool.forget(lease)
			continue
		case errors.Is(err, ErrConflict):
			pool.give(lease, res.Doubt) // a correction is put where this outcome was
		}
		return err
	}
}

// put puts the record as a resolution has made it on a lease, as amend does.
func (o operator) put(ctx context.Context, text string, lease clientv3.LeaseID) (commit.Amending, error) {
	return o.amend(ctx, func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == text },
		clientv3.OpPut(o.entry.Record, text, clientv3.WithLease(lease)))
}

// amend changes the record, if it is as the call has read it and no attempt is in progress; mine reports whether
// a record is as the change leaves it. The result has the revision of the change, or, with ErrConflict, whether an answer was
// lost: then the change may have been made, and replaced since.
func (o operator) amend(ctx context.Context, mine func(*mvccpb.KeyValue) bool, then ...clientv3.Op) (commit.Amending, error) {
	defer o.cache.forget(o.entry.Ref) // after saw: a later read by one member is of what this call has left
	sent := now()
	res, err := commit.Amend(ctx, o.sess.KV(), commit.Amendment{
		Key: o.entry.Record, Mod: o.st.mod(), Then: then, Mine: mine,
		If: o.reader.ended(o.st), Same: func() clientv3.Op {
			return clientv3.OpPut(o.entry.Record, string(o.st.kv.Value), clientv3.WithLease(clientv3.LeaseID(o.st.kv.Lease)))
		},
	})
	switch {
	case err != nil:
		return res, err
	case res.Outcome == commit.Amended:
		o.reader.saw(res.Mod, sent) // so that no answer of a member that lags behind is used here
		return res, nil
	case res.Outcome == commit.LeaseGone:
		return res, fmt.Errorf("%w: %w", ErrConflict, rpctypes.ErrLeaseNotFound)
	case res.Doubt:
		return res, fmt.Errorf("%w: the record has changed meanwhile; etcd's first answer was lost, so this call may have changed it before that", ErrConflict)
	}
	return res, fmt.Errorf("%w: the record has changed meanwhile", ErrConflict)
}

// keptUnknown returns for how long the store that has begun the request keeps it with an unknown outcome, which is no
// shorter than its Retain: the lease of the record shows it. It returns 0 if that has expired, and the record with it.
func (o operator) keptUnknown(ctx context.Context) (time.Duration, error) {
	granted, err := grantedTo(ctx, o.sess, clientv3.LeaseID(o.st.kv.Lease))
	return outlived(granted), err
}
