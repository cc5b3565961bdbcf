package queue

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

// Tally is what counts show of a queue. It costs etcd little, however long the queue is.
type Tally struct {
	Light, Others int64 // requests of weight 1, and heavier ones
	Records       limit.Records
}

// Counts are the reads of a tally. Foreign keys are read beside the counts, which include them.
func (r *Reader) Counts(foreign []mirror.ForeignKey) []clientv3.Op {
	ops := append([]clientv3.Op{clientv3.OpGet(r.Keys.Light, clientv3.WithPrefix(), clientv3.WithCountOnly())}, r.Limit.Counts()...)
	return append(ops, readForeign(foreign)...)
}

// Counted returns what the reads of Counts have shown.
func (r *Reader) Counted(foreign []mirror.ForeignKey, read []*etcdserverpb.ResponseOp) (t Tally) {
	light, others := r.uncount(foreign, read[len(read)-len(foreign):])
	t.Records, t.Others = r.Limit.Counted(read[1:])
	t.Light, t.Others = read[0].GetResponseRange().Count-light, t.Others-others
	return t
}

// Count reads a tally.
func (r *Reader) Count(ctx context.Context) (t Tally, revision int64, err error) {
	t, _, revision, err = r.CountAnd(ctx, nil)
	return t, revision, err
}

// CountAnd reads a tally and more, as of the same revision.
func (r *Reader) CountAnd(ctx context.Context, more []clientv3.Op) (t Tally, and []*etcdserverpb.ResponseOp, revision int64, err error) {
	foreign := r.ForeignKeys()
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return r.KV.Txn(call).Then(append(r.Counts(foreign), more...)...).Commit()
	})
	if err != nil {
		return t, nil, 0, err
	}
	r.See(resp.Header.Revision)
	n := len(resp.Responses) - len(more)
	t = r.Counted(foreign, resp.Responses[:n])
	t.Records.At = resp.Header.Revision
	return t, resp.Responses[n:], resp.Header.Revision, nil
}

// maxForeign is the greatest number of foreign keys that a request reads beside the counts.
// With more of them, the counts are not corrected, and each hand-over costs one read of
// the queue.
const maxForeign = 16

// ForeignKeys returns the foreign keys that the counts of a request include, as far as the view
// of the queue has shown them. They may be gone, or requests by now: the Txn that counts
// also reads them.
func (r *Reader) ForeignKeys() (in []mirror.ForeignKey) {
	for _, s := range r.foreign.of(r.View) {
		// A fixed limit is not read, and with it nothing before the light requests.
		if strings.HasPrefix(s.Key, r.Keys.Light) || r.Limit.Fixed() == 0 && s.Key > r.Keys.Limit && s.Key < r.Keys.Light {
			in = append(in, s)
		}
	}
	if len(in) > maxForeign {
		return nil
	}
	return in
}

// foreignKeys are the foreign keys that a view has shown last.
type foreignKeys struct {
	mu   sync.Mutex
	seen []mirror.ForeignKey
}

func (s *foreignKeys) of(view *mirror.Shared) []mirror.ForeignKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, listed := view.ForeignKeys(); listed {
		s.seen = seen
	}
	return s.seen
}

func (s *foreignKeys) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
}

// readForeign are the reads of foreign keys in a request's Txn.
func readForeign(foreign []mirror.ForeignKey) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(foreign))
	for _, s := range foreign {
		ops = append(ops, clientv3.OpGet(s.Key, clientv3.WithKeysOnly()))
	}
	return ops
}

// uncount returns how many keys the counts of a request's Txn include that are no
// requests: those that still are what the view has shown. A key becomes a request only by
// being written, which changes its revision.
func (r *Reader) uncount(foreign []mirror.ForeignKey, read []*etcdserverpb.ResponseOp) (light, others int64) {
	for i, s := range foreign {
		kvs := read[i].GetResponseRange().Kvs
		switch {
		case len(kvs) == 0 || kvs[0].ModRevision != s.Mod:
		case strings.HasPrefix(s.Key, r.Keys.Light):
			light++
		default:
			others++
		}
	}
	return light, others
}
