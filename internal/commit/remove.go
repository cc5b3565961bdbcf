package commit

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Removal is the outcome of Remove.
type Removal int

// The outcomes of Remove.
const (
	// Absent: the key did not exist.
	Absent Removal = iota
	// Removed: this call removed it.
	Removed
	// Vanished: a response was lost, and then the key did not exist: most likely, this call
	// removed it.
	Vanished
	// Partial: this call removed the key, but a Txn that was to go with it found something else than
	// it expects.
	Partial
	// Orphaned: the lease of a put is gone. Nothing was removed.
	Orphaned
)

// longPause is the longest pause between tries of a write that must succeed in the end, and that
// many processes may repeat at once, while etcd refuses it.
const longPause = 10 * time.Second

// Guard is the compare that holds only while the key with that token is as it was created. The
// mod revision says more than the create revision: a key that was put again, maybe on another
// lease or on none, is no longer what its owner was granted.
func Guard(key string, token int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", token)
}

// Remove deletes key if its create revision is token, and with it the keys in also that were
// created in the same Txn. It never deletes a key that was created later under the same name.
// It repeats until the outcome is known. It returns an error of etcd's that repeating would not
// change, or ctx's error; then the key may exist or not.
//
// The Txn only deletes, so it passes while etcd is out of space.
func Remove(ctx context.Context, kv clientv3.KV, key string, token int64, also ...string) (Removal, error) {
	return RemoveWith(ctx, kv, key, token, nil, also...)
}

// Erase is EraseWith nothing more.
func Erase(ctx context.Context, kv clientv3.KV, key string, token int64, refused func(error), also ...string) (Removal, error) {
	return EraseWith(ctx, kv, key, token, nil, refused, also...)
}

// EraseWith is RemoveWith for a key whose owner no longer waits for the outcome. It repeats even
// while etcd refuses, since an operator may mend that, and returns an error only if ctx has ended. It
// calls refused, if not nil, with the first error.
func EraseWith(ctx context.Context, kv clientv3.KV, key string, token int64, with []clientv3.Op, refused func(error), also ...string) (Removal, error) {
	return Together{}.EraseWith(ctx, kv, key, token, with, refused, also...)
}

// EraseWith is EraseWith, the first time by the group: see RemoveWith of Together.
func (t Together) EraseWith(ctx context.Context, kv clientv3.KV, key string, token int64, with []clientv3.Op, refused func(error), also ...string) (Removal, error) {
	pause := Backoff{Most: longPause}
	doubt := false
	for {
		removal, err := t.RemoveWith(ctx, kv, key, token, with, also...)
		t = Together{}
		if err == nil && removal == Absent && doubt {
			return Vanished, nil
		}
		if err == nil {
			return removal, nil
		}
		doubt = doubt || removal == Vanished
		if ctx.Err() == nil && refused != nil {
			refused(err)
			refused = nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return removal, err
		}
	}
}

// puts reports whether an operation may put.
func puts(op clientv3.Op) bool {
	if !op.IsTxn() {
		return op.IsPut()
	}
	_, then, otherwise := op.Txn()
	return slices.ContainsFunc(then, puts) || slices.ContainsFunc(otherwise, puts)
}

// RemoveWith is Remove with more puts, deletes and Txns in the same Txn. If the conditions of one of
// those Txns do not hold, it returns Partial. With a put it does not pass while
// etcd is out of space.
func RemoveWith(ctx context.Context, kv clientv3.KV, key string, token int64, with []clientv3.Op, also ...string) (Removal, error) {
	return Together{}.RemoveWith(ctx, kv, key, token, with, also...)
}

// RemoveWith is RemoveWith, the first time by the group. All parts of that must only delete: one that
// puts would keep the others from passing while etcd is out of space.
func (t Together) RemoveWith(ctx context.Context, kv clientv3.KV, key string, token int64, with []clientv3.Op, also ...string) (Removal, error) {
	ops := make([]clientv3.Op, 0, 1+len(also)+len(with))
	ops = append(ops, clientv3.OpDelete(key))
	for _, k := range also {
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(k), "=", token)},
			[]clientv3.Op{clientv3.OpDelete(k)}, nil))
	}
	ops = append(ops, with...)
	var repeat []class
	if !slices.ContainsFunc(with, puts) {
		repeat = []class{answered} // "no space" is also the answer to the put that fills the quota
	}
	resp, doubt, err := t.again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", token)}, ops, nil, repeat...)
	gone := Absent
	if doubt {
		gone = Vanished
	}
	switch {
	case err == nil && resp.Succeeded:
		for _, r := range resp.Responses[len(ops)-len(with):] {
			if inner := r.GetResponseTxn(); inner != nil && !inner.Succeeded {
				return Partial, nil
			}
		}
		return Removed, nil
	case err != nil && classify(err) == orphaned:
		return Orphaned, nil
	}
	return gone, err
}
