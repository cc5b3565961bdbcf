package idempotency

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/batch"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

const (
	// readsAtOnce is how many requests of one kind are in flight before further reads are batched.
	readsAtOnce = 2
	// perRead is how many records one request reads, each with a presence key. etcd accepts 128 operations in a Txn.
	perRead = 64
	// gatherFor bounds how long a read waits for a batch, so that a request that hangs does not
	// delay others.
	gatherFor = 20 * time.Millisecond
)

// gather reads keys. Reads at the same time share one request.
type gather struct {
	sess  *engine.Session
	opts  []clientv3.OpOption
	queue batch.Queue[*reading]
}

func newGather(sess *engine.Session, opts ...clientv3.OpOption) *gather {
	g := &gather{sess: sess, opts: opts}
	g.queue = batch.Queue[*reading]{AtOnce: readsAtOnce, Most: perRead, Wait: gatherFor, Send: g.together, Go: sess.Background}
	return g
}

// reading is one read and its result.
type reading struct {
	batch.Place
	key, also string

	sent     moment // before the request was sent
	revision int64
	kvs      []*mvccpb.KeyValue
	present  bool // the key also exists
	err      error
}

// read reads a key and, as of the same revision, whether another one exists, unless that is "". Its err is etcd's or
// ctx's.
func (g *gather) read(ctx context.Context, key, also string) *reading {
	r := &reading{key: key, also: also}
	turn, err := g.queue.Join(ctx, r)
	switch {
	case err != nil:
		return &reading{err: err}
	case turn == batch.First:
		defer g.queue.Next()
	}
	if turn != batch.Together || r.err != nil { // a batch may exceed a bound that a single read does not
		g.alone(ctx, r)
	}
	return r
}

func (g *gather) alone(ctx context.Context, r *reading) {
	r.sent = now()
	call, cancel := commit.Call(ctx)
	defer cancel()
	if r.also == "" {
		resp, err := g.sess.KV().Get(call, r.key, g.opts...)
		if r.err = err; err == nil {
			r.kvs, r.revision = resp.Kvs, resp.Header.Revision
		}
		return
	}
	resp, err := g.sess.KV().Txn(call).Then(g.ops(nil, r)...).Commit()
	if r.err = err; err == nil {
		g.take(resp, resp.Responses, r)
	}
}

// ops appends what reads r.
func (g *gather) ops(ops []clientv3.Op, r *reading) []clientv3.Op {
	ops = append(ops, clientv3.OpGet(r.key, g.opts...))
	if r.also != "" {
		ops = append(ops, clientv3.OpGet(r.also, append(slices.Clip(g.opts), clientv3.WithKeysOnly())...))
	}
	return ops
}

// take takes the responses to what reads r from those of a Txn, and returns the rest.
func (g *gather) take(of *clientv3.TxnResponse, responses []*etcdserverpb.ResponseOp, r *reading) []*etcdserverpb.ResponseOp {
	r.kvs, r.revision = responses[0].GetResponseRange().Kvs, of.Header.Revision
	if r.also == "" {
		return responses[1:]
	}
	r.present = len(responses[1].GetResponseRange().Kvs) > 0
	return responses[2:]
}

// together sends one request for a batch. Only the session's context ends it, no caller's.
func (g *gather) together(batch []*reading) {
	sent := now()
	ops := make([]clientv3.Op, 0, len(batch))
	for _, r := range batch {
		ops = g.ops(ops, r)
	}
	call, cancel := commit.Call(g.sess.Context())
	defer cancel()
	resp, err := g.sess.KV().Txn(call).Then(ops...).Commit()
	var left []*etcdserverpb.ResponseOp
	if err == nil {
		left = resp.Responses
	}
	for _, r := range batch {
		r.sent = sent
		if r.err = err; err == nil {
			left = g.take(resp, left, r)
		}
		r.Notify()
	}
}
