package queue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/rank"
)

// provable is how many requests are looked for beside the counts. If there are more, the queue is listed.
const provable = 32

// Prove asks etcd whether requests wait, and which of some are gone, by their place. Counts show whether requests
// wait where all have weight 1.
func (r *Reader) Prove(ctx context.Context, some []*Ticket) (waits bool, gone []int, err error) {
	var looks []clientv3.Op
	if len(some) <= provable {
		for _, t := range some {
			looks = append(looks, clientv3.OpGet(t.Key, clientv3.WithKeysOnly()))
		}
	}
	t, found, _, err := r.CountAnd(ctx, looks)
	if err != nil {
		return false, nil, err
	}
	for i := range found {
		if kvs := found[i].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].CreateRevision != some[i].Token {
			gone = append(gone, i)
		}
	}
	if t.Others == 0 && len(some) <= provable {
		l, stored, err := r.Limit.Learn(t.Records)
		return !stored || !rank.Fits(0, t.Light, l.N), gone, err
	}
	v, err := r.Read(ctx)
	if err != nil {
		return false, nil, err
	}
	if len(some) > provable {
		for i, t := range some {
			if _, _, there := v.Queue.Position(t.Key, t.Token); !there {
				gone = append(gone, i)
			}
		}
	}
	return v.Queue.Asked(), gone, nil
}
