package commit

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Put is clientv3.OpPut of a value on a lease. It does not copy the value, which must not change.
func Put(key string, value []byte, lease clientv3.LeaseID) clientv3.Op {
	op := clientv3.OpPut(key, "", clientv3.WithLease(lease))
	op.WithValueBytes(value)
	return op
}

// ErrConflict says that a key was changed since it was read.
var ErrConflict = errors.New("key was changed since it was read")

// Found is what a value at the key of a change shows of that change, whose answer was lost.
type Found int

const (
	// Another: the value replaces this change, whether or not it was made before.
	Another Found = iota
	// Mine: the value is that of this change.
	Mine
	// NotMade: the value keeps what was there before, so this change was not made, and is not
	// replaced either.
	NotMade
)

// Swap is a compare-and-set: it puts value at key if the key's mod revision is mod, 0 for a key
// that does not exist. shows returns what a value that is found at the key shows of this change. Swap
// returns the revision of the change and the responses to also, which is done in the same Txn; they are nil
// if a later read has found the change made.
//
// It returns ErrConflict if another change came first. If a response was lost and another
// change is found afterwards, both were concurrent: Swap then takes its own as made just before
// the other and returns revision 0, since repeating it could undo the newer one. It
// repeats until the outcome is known. It returns an error of etcd's that repeating would not
// change, or ctx's error; then the change may be made or not. A copy that arrives after another
// change does nothing.
func Swap(ctx context.Context, kv clientv3.KV, key string, mod int64, value string, shows func([]byte) Found, also ...clientv3.Op) (int64, []*etcdserverpb.ResponseOp, error) {
	return SwapIf(ctx, kv, key, mod, nil, value, shows, also...)
}

// SwapIf is Swap under more conditions. It returns ErrConflict as well if they are not met.
func SwapIf(ctx context.Context, kv clientv3.KV, key string, mod int64, ifs []clientv3.Cmp, value string, shows func([]byte) Found, also ...clientv3.Op) (int64, []*etcdserverpb.ResponseOp, error) {
	resp, doubt, err := again(ctx, kv, append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", mod)}, ifs...),
		append([]clientv3.Op{clientv3.OpPut(key, value)}, also...), []clientv3.Op{clientv3.OpGet(key)})
	switch {
	case err != nil:
		return 0, nil, err
	case resp.Succeeded:
		return resp.Header.Revision, resp.Responses[1:], nil
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	found := Another
	if len(kvs) == 1 {
		found = shows(kvs[0].Value)
	}
	switch {
	case found == Mine:
		return kvs[0].ModRevision, nil, nil
	case len(kvs) == 0 && mod == 0, len(kvs) == 1 && kvs[0].ModRevision == mod: // as it was: another condition is not met
		return 0, nil, ErrConflict
	case doubt && found == Another:
		return 0, nil, nil
	}
	return 0, nil, ErrConflict
}
