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

// Fence is the presence key of one session. Its mod revision stands in the
// compares of everything that the session creates; to put it again is to shut
// out every copy that was sent before. It is safe for concurrent use.
type Fence struct {
	kv    clientv3.KV
	lease clientv3.LeaseID
	key   string
	value string
	born  int64        // create revision
	mod   atomic.Int64 // mod revision, as far as known here; it only rises
}

// Raise creates the presence key on a new lease and returns the fence. It
// returns ErrGone if the lease has ended, an error of etcd's that repeating
// would not change, or ctx's error if that ends first. If it fails, the key goes
// with the lease.
func Raise(ctx context.Context, kv clientv3.KV, lease clientv3.LeaseID, key, value string) (*Fence, error) {
	f := &Fence{kv: kv, lease: lease, key: key, value: value}
	// Only this process writes the key, and only once, so what is found is its own.
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
		return f, nil
	}
	found := resp.Responses[0].GetResponseRange().Kvs[0]
	f.born = found.CreateRevision
	f.learn(found.ModRevision)
	return f, nil
}

// Born is the create revision of the presence key.
func (f *Fence) Born() int64 { return f.born }

func (f *Fence) put() clientv3.Op {
	return clientv3.OpPut(f.key, f.value, clientv3.WithLease(f.lease))
}

func (f *Fence) stands(at int64) clientv3.Cmp {
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

// check learns from a read of the presence key and tells whether it still is this
// session's. The fence was known to stand at that revision before the read: one that
// stands lower does so because etcd's history was taken back.
func (f *Fence) check(kvs []*mvccpb.KeyValue, before int64) error {
	if len(kvs) != 1 || kvs[0].CreateRevision != f.born || kvs[0].ModRevision < before {
		return ErrGone
	}
	f.learn(kvs[0].ModRevision)
	return nil
}
