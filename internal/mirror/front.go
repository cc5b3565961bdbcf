package mirror

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Front keeps m up to date with the front part of its queue: the requests up to a token, which upTo
// returns before each list. Newer requests decide nothing for those, so they are not listed. Where the
// limit is fixed, nothing but a deletion admits a request, so the watch brings nothing else.
//
// With alone it brings deletions only, also where the limit is stored: the caller watches that, and calls
// ListAgain when it has changed. What m shows as admitted after a deletion has to be confirmed then, see
// Waiter.Suggested.
//
// A waiter with a newer request may wait there: it has the queue listed again.
func (s *Source) Front(ctx context.Context, m *Mirror, upTo func() int64, alone bool) {
	h := &front{Mirror: m}
	f := &follower{source: s, prefix: m.keys.Range, handler: h, read: func(ctx context.Context) ([]*mvccpb.KeyValue, int64, error) {
		return h.read(ctx, s.KV, upTo())
	}}
	if m.fixed > 0 || alone {
		f.filter = []clientv3.OpOption{clientv3.WithFilterPut()}
	}
	m.mu.Lock()
	m.alone = m.fixed == 0 && alone
	m.mu.Unlock()
	s.follow(ctx, f)
}

// front is a mirror with what its last list has left out.
type front struct {
	*Mirror
	upTo  int64
	newer int
}

// Reset implements Handler.
func (h *front) Reset(kvs []*mvccpb.KeyValue, revision int64) {
	h.reset(kvs, revision, h.upTo, h.newer)
}

func (h *front) read(ctx context.Context, kv clientv3.KV, upTo int64) ([]*mvccpb.KeyValue, int64, error) {
	ops := []clientv3.Op{clientv3.OpGet(h.keys.Requests, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(upTo))}
	if h.fixed == 0 {
		ops = append(ops, clientv3.OpGet(h.keys.Limit))
	}
	resp, err := kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, 0, err
	}
	requests := resp.Responses[0].GetResponseRange()
	kvs := requests.Kvs
	h.upTo, h.newer = upTo, int(requests.Count)-len(kvs) // etcd counts before it leaves out the newer ones
	if h.fixed == 0 {
		kvs = append(kvs, resp.Responses[1].GetResponseRange().Kvs...)
	}
	return kvs, resp.Header.Revision, nil
}
