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
	switch verdict := o.attachedIsDenied(ctx, o.a.store.sess.KV(), o.a.entry, err); {
	case verdict:
		return fmt.Errorf("%w: %w: %w", errRejected, errAttachedDenied, err), false
	case !o.denied.IsZero():
		return fmt.Errorf("%w: %w", errAttachedDenied, err), again
	}
	return err, again
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
