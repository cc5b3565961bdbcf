package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// attachedDenied is how long etcd denies an outcome, and would allow it without what is attached, until that is
// a verdict on what is attached. An operator who replaces a role takes less.
const attachedDenied = 5 * time.Second

// errAttachedDenied is what is known before that.
var errAttachedDenied = errors.New("the role of the client's user has no permission for what is attached")

// try writes the outcome once. again reports that a later try may succeed.
func (o *settlement) try(ctx context.Context) (err error, again bool) {
	err, again = o.write(ctx)
	if errors.Is(err, errRejected) {
		return o.rejected(ctx, err)
	}
	switch verdict := o.attachedIsDenied(ctx, o.a.store.sess.KV(), o.a.entry, err); {
	case verdict:
		return o.rejected(ctx, fmt.Errorf("%w: %w: %w", errRejected, errAttachedDenied, err))
	case !o.denied.IsZero():
		return fmt.Errorf("%w: %w", errAttachedDenied, err), again
	}
	return err, again
}

// tryAllowed repeats try after err for as long as etcd denies the outcome.
func (o *settlement) tryAllowed(ctx context.Context, err error, again bool) (error, bool) {
	trusted := func() bool { return again && o.a.epoch.Valid() }
	err = commit.AllowedAfter(ctx, err, trusted, func() (err error) {
		err, again = o.try(ctx)
		return err
	})
	return err, again
}

// rejected returns why nothing was written. If a try was not answered, the record is put again as it is before, so that no
// copy of that can take effect any more; or it has taken effect, and that is the outcome.
func (o *settlement) rejected(ctx context.Context, why error) (err error, again bool) {
	a, own, s := o.a, &o.a.own, o.a.store
	if !o.doubt {
		return why, false
	}
	was := own.rec.Encode()
	res, err := own.put(ctx, was, was)
	switch {
	case err != nil:
		return err, true
	case res.Outcome == commit.Amended:
		own.mod, o.doubt = res.Mod, false
		return why, false
	case res.Outcome == commit.LeaseGone: // another attempt may begin, so this one does not continue
		return own.gone(), false
	case !o.wrote(res.Found):
		return &fencedError{res.Found}, false
	}
	parts := o.found(res.Found)
	k := kept{kv: s.sess.KV(), entry: a.entry, text: o.text, token: a.token, parts: parts}
	err = k.prolong(ctx, s.retention.of(a.set.Retain), &pooled{}, commit.Amending{Mod: res.Found.ModRevision, Found: res.Found})
	return err, err != nil
}

// attachedIsDenied reports whether an error of write is such a verdict. While etcd denies the store's own keys as
// well, it says nothing about those that are attached.
func (o *settlement) attachedIsDenied(ctx context.Context, kv clientv3.KV, own keyspace.Entry, err error) bool {
	if len(o.ifs)+len(o.then) == 0 || !commit.Denied(err) || commit.NoLogin(err) || !outcomeIsAllowed(ctx, kv, own) {
		o.denied = moment{}
		return false
	}
	if o.denied.IsZero() {
		o.denied = now()
	}
	return aged(o.denied) >= attachedDenied
}

// outcomeIsAllowed reports whether etcd allows an outcome without what is attached. It asks by a Txn that writes
// nothing: etcd checks the permission for all operations of a Txn, also for those that it does not execute.
func outcomeIsAllowed(ctx context.Context, kv clientv3.KV, own keyspace.Entry) bool {
	call, cancel := commit.Call(ctx)
	defer cancel()
	_, err := kv.Txn(call).If(clientv3.Compare(clientv3.ModRevision(own.Record), "<", 0)).
		Then(clientv3.OpPut(own.Record, "")).Commit()
	return err == nil
}
