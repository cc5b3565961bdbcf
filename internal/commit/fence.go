package commit

import (
	"context"
	"errors"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrGone says that the presence key is gone: its session is lost.
var ErrGone = errors.New("presence key is gone")

// Fence is the presence key of one session. The compares of everything that the session
// creates contain its mod revision; putting it again shuts out every copy that was sent
// before. It is safe for concurrent use.
type Fence struct {
	kv    clientv3.KV
	lease clientv3.LeaseID
	key   string
	value string
	born  int64        // create revision
	mod   atomic.Int64 // the greatest mod revision known here
}

// Raise creates the presence key on a new lease and returns the fence. It returns ErrGone if
// the lease has ended, ErrNotEtcd if the answer is not etcd's, an error of etcd's that repeating would not change, or ctx's error. If
// Raise fails, the key ends with the lease.
func Raise(ctx context.Context, kv clientv3.KV, lease clientv3.LeaseID, key, value string) (*Fence, error) {
	f := &Fence{kv: kv, lease: lease, key: key, value: value}
	// Only this process writes the key, and only once, so a key that is found is its own. The Txn within, whose
	// condition holds before the put, reads what the put has stored: it shows that the server is etcd.
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	resp, _, err := again(ctx, kv, absent,
		[]clientv3.Op{f.put(), clientv3.OpTxn(absent, []clientv3.Op{clientv3.OpGet(key)}, nil)}, []clientv3.Op{clientv3.OpGet(key)})
	switch {
	case err != nil && classify(err) == orphaned:
		return nil, ErrGone
	case err != nil:
		return nil, err
	case resp.Succeeded && !f.shown(resp):
		return nil, ErrNotEtcd
	case resp.Succeeded:
		f.born = resp.Header.Revision
		f.learn(f.born)
	default:
		found := resp.Responses[0].GetResponseRange().Kvs[0]
		f.born = found.CreateRevision
		f.learn(found.ModRevision)
	}
	return f, nil
}

// shown reports whether the answer to the put shows what everything here relies on: that the key is on the lease,
// that its revision is that of the Txn, and that Txns within Txns are executed.
func (f *Fence) shown(resp *clientv3.TxnResponse) bool {
	if len(resp.Responses) != 2 || resp.Responses[1].GetResponseTxn() == nil {
		return false
	}
	within := resp.Responses[1].GetResponseTxn()
	if !within.Succeeded || len(within.Responses) != 1 || len(within.Responses[0].GetResponseRange().GetKvs()) != 1 {
		return false
	}
	kv, at := within.Responses[0].GetResponseRange().Kvs[0], resp.Header.GetRevision()
	return at > 0 && kv.CreateRevision == at && kv.ModRevision == at && kv.Lease == int64(f.lease)
}

// Born is the create revision of the presence key.
func (f *Fence) Born() int64 { return f.born }

func (f *Fence) put() clientv3.Op {
	return clientv3.OpPut(f.key, f.value, clientv3.WithLease(f.lease))
}

func (f *Fence) unraised(at int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(f.key), "=", at)
}

func (f *Fence) learn(mod int64) {
	for {
		known := f.mod.Load()
		if mod <= known || f.mod.CompareAndSwap(known, mod) {
			return
		}
	}
}

// check takes over the mod revision from a read of the presence key. It returns ErrGone if the
// key is no longer this session's. before is the mod revision that was known before the read:
// a lower one means that etcd was restored from a backup.
func (f *Fence) check(kvs []*mvccpb.KeyValue, before int64) error {
	if len(kvs) != 1 || kvs[0].CreateRevision != f.born || kvs[0].ModRevision < before {
		return ErrGone
	}
	f.learn(kvs[0].ModRevision)
	return nil
}
