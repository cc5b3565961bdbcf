package engine

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Stored is a request as it is in etcd. Whatever ends a request, a release, a withdrawal,
// MaxHold, an eviction or a sweep, removes it by one of the three methods below: all of its
// keys in one Txn, and only while the first one is the one that has the token.
type Stored struct {
	Key   string
	Token int64    // the create revision of Key; 0 until it is written
	Also  []string // keys that were created with it: that of its ID
	// Next are the keys that the request may have in another queue, which it joins when it is
	// admitted in the first. They are created only on the condition that Key is unchanged: so with
	// its removal no copy of that can be applied any more.
	Next []string
	// Joined is the one of them that is known to have been written. If it is set, a removal that does
	// not find it with that create revision is commit.Partial.
	Joined Joined
}

// Joined is a request in another queue.
type Joined struct {
	Key   string
	Token int64
}

// with returns what the removal of Key deletes besides Also.
func (r Stored) with() (deletes []clientv3.Op) {
	for _, key := range r.Next {
		op := clientv3.OpDelete(key)
		if key == r.Joined.Key {
			is := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", r.Joined.Token)}
			op = clientv3.OpTxn(is, []clientv3.Op{op}, []clientv3.Op{op})
		}
		deletes = append(deletes, op)
	}
	return deletes
}

// requests removes requests of any session, and has what callers write at the same time sent together.
type requests struct {
	kv    clientv3.KV
	space keyspace.Space

	// creations and removals are apart, since a put fails where etcd has no space, and all that is in one Txn with it.
	creations, removals *commit.Group
}

// Remove removes a request: see commit.Remove.
func (r requests) Remove(ctx context.Context, of Stored) (commit.Removal, error) {
	return r.leaving(of).RemoveWith(ctx, r.kv, of.Key, of.Token, of.with(), of.Also...)
}

// Erase is Remove that is repeated if etcd refuses it: see commit.Erase.
func (r requests) Erase(ctx context.Context, of Stored, refused func(error)) (commit.Removal, error) {
	return r.leaving(of).EraseWith(ctx, r.kv, of.Key, of.Token, of.with(), refused, of.Also...)
}

// leaving has the removal of a request share a Raft entry with those of others. They may be in one
// queue: each is conditional on its own keys alone, and whatever order their deletions have, the
// requests that are left have the same one.
func (r requests) leaving(of Stored) commit.Together {
	return commit.Together{Group: r.removals, Subjects: []string{of.Key}}
}

// Entering has the creation of a request share a Raft entry with those of others, in queues with
// other subjects.
func (r requests) Entering(subjects []string) commit.Together {
	return commit.Together{Group: r.creations, Subjects: subjects}
}

// EraseJoined removes the request in the other queue alone, for one whose first key was gone before
// Remove or Erase: it was deleted by hand then, since one Txn removes both. It returns commit.Removed if
// it has removed one.
func (r requests) EraseJoined(ctx context.Context, of Stored, refused func(error)) (commit.Removal, error) {
	switch {
	case len(of.Next) == 0:
		return commit.Absent, nil
	case of.Joined.Token != 0:
		return commit.Erase(ctx, r.kv, of.Joined.Key, of.Joined.Token, refused)
	}
	// It is not known whether it was written. Without the first key no copy of the Txn that would write
	// it can be applied any more, and no other request has these keys before the slot is free.
	var none []clientv3.Cmp
	var remove []clientv3.Op
	for _, key := range of.Next {
		none = append(none, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		remove = append(remove, clientv3.OpDelete(key))
	}
	removal, err := commit.EraseWith(ctx, r.kv, of.Key, 0, []clientv3.Op{clientv3.OpTxn(none, nil, remove)}, refused)
	if removal == commit.Partial {
		return commit.Removed, err
	}
	return commit.Absent, err
}

// Evict removes a request of any session and leaves a notice for that session, in one Txn.
// lease is the one in the request's key.
func (r requests) Evict(ctx context.Context, of Stored, lease int64, n record.Notice) (commit.Removal, error) {
	put := clientv3.OpPut(r.space.Session(lease).Notice(of.Token, of.Key), n.Encode(), clientv3.WithLease(clientv3.LeaseID(lease)))
	removal, err := commit.RemoveWith(ctx, r.kv, of.Key, of.Token, append(of.with(), put), of.Also...)
	if err == nil && removal == commit.Orphaned {
		// The key is on another lease than its name says, so no session waits for a notice.
		return r.Remove(ctx, of)
	}
	return removal, err
}

// Withdraw deletes the keys of a request that its caller has given up, in the background,
// and then frees its slot. refused is called if etcd refuses that; it is repeated until the
// lease ends. Once the lease is lost there is nothing to do: the session revokes it until
// that is certain, and with it go the keys.
func (e *Epoch) Withdraw(t *Ticket, refused func(error)) {
	if e.ctx.Err() != nil {
		return
	}
	e.Deletes(t)
	e.sess.Background(func() {
		removal, err := e.sess.Erase(e.ctx, t.Stored, refused)
		if err == nil && removal != commit.Removed && removal != commit.Partial {
			_, err = e.sess.EraseJoined(e.ctx, t.Stored, refused)
		}
		if err == nil {
			e.Free(t)
		}
	})
}

// Discard settles, in the background, a request of which it is not known whether it was
// written, and removes it if so. Its slot stays taken until that is certain. If the lease is
// lost before, its end settles it.
func (e *Epoch) Discard(t *Ticket, pending *commit.PendingError) {
	e.Deletes(t)
	if !e.sess.Background(func() {
		if err := pending.DiscardWith(e.ctx, t.with(), t.Also...); err == nil {
			e.Free(t)
		}
	}) {
		pending.Abandon()
	}
}
