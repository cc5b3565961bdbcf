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
// the lease has ended, an error of etcd's that repeating would not change, or ctx's error. If
// Raise fails, the key ends with the lease.
func Raise(ctx context.Context, kv clientv3.KV, lease clientv3.LeaseID, key, value string) (*Fence, error) {
	f := &Fence{kv: kv, lease: lease, key: key, value: value}
	// Only this process writes the key, and only once, so a key that is found is its own.
	resp, _, err := again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{f.put()}, []clientv3.Op{clientv3.OpGet(key)})
	switch {
	case err != nil && classify(err) == orphaned:
		return nil, ErrGone
	case err != nil:
		return nil, err
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
