package commit

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrConflict says that a key was changed since it was read.
var ErrConflict = errors.New("key was changed since it was read")

// Swap is a compare-and-set: it puts value at key if the key's mod revision is
// mod, 0 for a key that does not exist. mine tells this value from all others.
// It returns the revision of the change and the answers to also, which is done or read
// in the same Txn; they are nil if the change was found applied only afterwards.
//
// It returns ErrConflict if another change came first. If an answer was lost and
// then another's change is found, that one came at the same time as this, so this
// is taken as done just before it, at a revision that is not known and returned as
// 0: to repeat it could undo what is newer. It repeats until the outcome is known, an
// error of etcd's that repeating would not change comes, or ctx ends; then the change may
// be made or not. A copy of it that comes late, after another change, does nothing.
func Swap(ctx context.Context, kv clientv3.KV, key string, mod int64, value string, mine func([]byte) bool, also ...clientv3.Op) (int64, []*etcdserverpb.ResponseOp, error) {
	resp, doubt, err := again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", mod)},
		append([]clientv3.Op{clientv3.OpPut(key, value)}, also...), []clientv3.Op{clientv3.OpGet(key)})
	switch {
	case err != nil:
		return 0, nil, err
	case resp.Succeeded:
		return resp.Header.Revision, resp.Responses[1:], nil
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	switch {
	case len(kvs) == 1 && mine(kvs[0].Value):
		return kvs[0].ModRevision, nil, nil
	case doubt:
		return 0, nil, nil
	}
	return 0, nil, ErrConflict
}
