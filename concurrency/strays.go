package concurrency

import (
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/mirror"
)

// maxStrays is the greatest number of stray keys that a request reads beside the counts.
// With more of them, the counts are not corrected, and each hand-over costs one read of
// the queue.
const maxStrays = 16

// counted returns the stray keys that the counts of a request include, as far as the view
// of the queue has shown them. They may be gone, or requests by now: the Txn that counts
// also reads them.
func (q *sessionQueue) counted() []mirror.Stray {
	q.mu.Lock()
	defer q.mu.Unlock()
	if strays, listed := q.view.Strays(); listed {
		q.strays = strays
	}
	var in []mirror.Stray
	for _, s := range q.strays {
		// A fixed limit is not read, and with it nothing before the light requests.
		if strings.HasPrefix(s.Key, q.keys.Light) || q.limit.Fixed() == 0 && s.Key > q.keys.Limit && s.Key < q.keys.Light {
			in = append(in, s)
		}
	}
	if len(in) > maxStrays {
		return nil
	}
	return in
}

// readStrays are the reads of stray keys in a request's Txn.
func readStrays(strays []mirror.Stray) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(strays))
	for _, s := range strays {
		ops = append(ops, clientv3.OpGet(s.Key, clientv3.WithKeysOnly()))
	}
	return ops
}

// uncount returns how many keys the counts of a request's Txn include that are no
// requests: those that still are what the view has shown. A key becomes a request only by
// being written, which changes its revision.
func (q *sessionQueue) uncount(strays []mirror.Stray, read []*etcdserverpb.ResponseOp) (light, others int64) {
	for i, s := range strays {
		kvs := read[i].GetResponseRange().Kvs
		switch {
		case len(kvs) == 0 || kvs[0].ModRevision != s.Mod:
		case strings.HasPrefix(s.Key, q.keys.Light):
			light++
		default:
			others++
		}
	}
	return light, others
}
