package idempotency

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/hold"
)

const (
	// readsAtOnce is how many reads of one kind are under way before others gather.
	readsAtOnce = 2
	// perRead is how many keys one request reads. etcd takes 128 operations in a Txn.
	perRead = 64
	// gatherFor bounds how long a read waits for company. One that hangs holds up nobody.
	gatherFor = 20 * time.Millisecond
)

// gather reads keys, those that are asked for at the same time in one request: a read costs
// the client and etcd more by its request than by its key.
type gather struct {
	sess hold.Session
	sure bool          // a majority is asked
	wait time.Duration // gatherFor

	mu      sync.Mutex
	running int
	waiting []*reading
}

func newGather(sess hold.Session, sure bool) *gather {
	return &gather{sess: sess, sure: sure, wait: gatherFor}
}

// reading is one key that is read, and what was found.
type reading struct {
	prefix string
	found  chan struct{}

	sent     time.Time // before it was asked for
	revision int64
	kvs      []*mvccpb.KeyValue
	err      error
}

// read reads what stands under a prefix. It returns an error of etcd's or ctx's.
func (g *gather) read(ctx context.Context, prefix string) *reading {
	r := &reading{prefix: prefix, found: make(chan struct{})}
	if g.start(r) {
		g.alone(ctx, r)
		g.next()
		return r
	}
	t := time.NewTimer(g.wait)
	defer t.Stop()
	select {
	case <-r.found:
	case <-t.C:
	case <-ctx.Done():
	}
	if !g.leave(r) {
		select {
		case <-r.found:
			if r.err == nil {
				return r
			}
			// Together they may be too much for a client's bounds, or hit what one would not.
		case <-ctx.Done():
			return &reading{err: ctx.Err()}
		}
	}
	g.alone(ctx, r)
	return r
}

// start tells whether a read may go now. Otherwise it waits for others to end.
func (g *gather) start(r *reading) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running >= readsAtOnce {
		g.waiting = append(g.waiting, r)
		return false
	}
	g.running++
	return true
}

// leave takes a read back that was not sent yet.
func (g *gather) leave(r *reading) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, r)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// next is for one that has ended: those who have gathered meanwhile go in its place.
func (g *gather) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.running--
		return
	}
	n := min(len(g.waiting), perRead)
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	if !g.sess.Background(func() {
		g.together(batch)
		g.next()
	}) {
		g.running--
		for _, r := range batch {
			r.err = ErrClosed
			close(r.found)
		}
	}
}

func (g *gather) options() []clientv3.OpOption {
	if g.sure {
		return []clientv3.OpOption{clientv3.WithPrefix()}
	}
	return []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSerializable()}
}

func (g *gather) alone(ctx context.Context, r *reading) {
	r.sent = time.Now()
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := g.sess.Client().Get(call, r.prefix, g.options()...)
	if r.err = err; err == nil {
		r.kvs, r.revision = resp.Kvs, resp.Header.Revision
	}
}

// together sends one request for all of them. Nobody's ctx ends it, only the session's.
func (g *gather) together(batch []*reading) {
	sent := time.Now()
	ops := make([]clientv3.Op, len(batch))
	for i, r := range batch {
		ops[i] = clientv3.OpGet(r.prefix, g.options()...)
	}
	call, cancel := commit.Call(g.sess.Context())
	defer cancel()
	resp, err := g.sess.Client().Txn(call).Then(ops...).Commit()
	for i, r := range batch {
		r.sent = sent
		if r.err = err; err == nil {
			r.kvs, r.revision = resp.Responses[i].GetResponseRange().Kvs, resp.Header.Revision
		}
		close(r.found)
	}
}
