package idempotency

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/batch"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
)

const (
	// readsAtOnce is how many requests of one kind are in flight before further reads are batched.
	readsAtOnce = 2
	// perRead is how many keys one request reads. etcd accepts 128 operations in a Txn.
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
	g := &gather{sess: sess, opts: append(opts, clientv3.WithPrefix())}
	g.queue = batch.Queue[*reading]{AtOnce: readsAtOnce, Most: perRead, Wait: gatherFor, Send: g.together, Go: sess.Background}
	return g
}

// reading is one read and its result.
type reading struct {
	prefix string
	found  chan struct{} // closed when it was read in a batch

	sent     moment // before the request was sent
	revision int64
	kvs      []*mvccpb.KeyValue
	err      error
}

// read reads the keys with a prefix. Its err is etcd's or ctx's.
func (g *gather) read(ctx context.Context, prefix string) *reading {
	r := &reading{prefix: prefix, found: make(chan struct{})}
	if err := g.queue.Join(ctx, r, r.found, func() { g.alone(ctx, r) }); err != nil {
		return &reading{err: err}
	}
	select {
	case <-r.found:
		if r.err != nil { // a batch may exceed a bound that a single read does not
			g.alone(ctx, r)
		}
	default:
	}
	return r
}

func (g *gather) alone(ctx context.Context, r *reading) {
	r.sent = now()
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := g.sess.KV().Get(call, r.prefix, g.opts...)
	if r.err = err; err == nil {
		r.kvs, r.revision = resp.Kvs, resp.Header.Revision
	}
}

// together sends one request for a batch. Only the session's context ends it, no caller's.
func (g *gather) together(batch []*reading) {
	sent := now()
	ops := make([]clientv3.Op, len(batch))
	for i, r := range batch {
		ops[i] = clientv3.OpGet(r.prefix, g.opts...)
	}
	call, cancel := commit.Call(g.sess.Context())
	defer cancel()
	resp, err := g.sess.KV().Txn(call).Then(ops...).Commit()
	for i, r := range batch {
		r.sent = sent
		if r.err = err; err == nil {
			r.kvs, r.revision = resp.Responses[i].GetResponseRange().Kvs, resp.Header.Revision
		}
		close(r.found)
	}
}
