package concurrency

import (
	"context"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// tally is what counts show of a queue. It costs etcd little, however long the queue is.
type tally struct {
	light, others int64 // requests of weight 1, and heavier ones
	records       limit.Records
}

// tallies are the reads of a tally. Stray keys are read beside the counts, which include them.
func (r *reader) tallies(strays []mirror.Stray) []clientv3.Op {
	ops := append([]clientv3.Op{clientv3.OpGet(r.keys.Light, clientv3.WithPrefix(), clientv3.WithCountOnly())}, r.limit.Counts()...)
	return append(ops, readStrays(strays)...)
}

// tally returns what the reads of tallies have shown.
func (r *reader) tally(strays []mirror.Stray, read []*etcdserverpb.ResponseOp) (t tally) {
	light, others := r.uncount(strays, read[len(read)-len(strays):])
	t.records, t.others = r.limit.Counted(read[1:])
	t.light, t.others = read[0].GetResponseRange().Count-light, t.others-others
	return t
}

// count reads a tally.
func (r *reader) count(ctx context.Context) (t tally, revision int64, err error) {
	t, _, revision, err = r.countAnd(ctx, nil)
	return t, revision, err
}

// countAnd reads a tally and more, as of the same revision.
func (r *reader) countAnd(ctx context.Context, more []clientv3.Op) (t tally, and []*etcdserverpb.ResponseOp, revision int64, err error) {
	strays := r.counted()
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return r.sess.KV().Txn(call).Then(append(r.tallies(strays), more...)...).Commit()
	})
	if err != nil {
		return t, nil, 0, err
	}
	r.sess.See(resp.Header.Revision)
	n := len(resp.Responses) - len(more)
	return r.tally(strays, resp.Responses[:n]), resp.Responses[n:], resp.Header.Revision, nil
}

// maxStrays is the greatest number of stray keys that a request reads beside the counts.
// With more of them, the counts are not corrected, and each hand-over costs one read of
// the queue.
const maxStrays = 16

// counted returns the stray keys that the counts of a request include, as far as the view
// of the queue has shown them. They may be gone, or requests by now: the Txn that counts
// also reads them.
func (r *reader) counted() (in []mirror.Stray) {
	for _, s := range r.strays.of(r.view) {
		// A fixed limit is not read, and with it nothing before the light requests.
		if strings.HasPrefix(s.Key, r.keys.Light) || r.limit.Fixed() == 0 && s.Key > r.keys.Limit && s.Key < r.keys.Light {
			in = append(in, s)
		}
	}
	if len(in) > maxStrays {
		return nil
	}
	return in
}

// strays are the stray keys that a view has shown last.
type strays struct {
	mu   sync.Mutex
	seen []mirror.Stray
}

func (s *strays) of(view *mirror.Shared) []mirror.Stray {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, listed := view.Strays(); listed {
		s.seen = seen
	}
	return s.seen
}

// forget forgets them: a revision may be that of another state by now.
func (s *strays) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
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
func (r *reader) uncount(strays []mirror.Stray, read []*etcdserverpb.ResponseOp) (light, others int64) {
	for i, s := range strays {
		kvs := read[i].GetResponseRange().Kvs
		switch {
		case len(kvs) == 0 || kvs[0].ModRevision != s.Mod:
		case strings.HasPrefix(s.Key, r.keys.Light):
			light++
		default:
			others++
		}
	}
	return light, others
}
