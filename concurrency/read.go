package concurrency

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// read lists the queue and its limit, at one revision. That revision counts as met: a
// view of the queue that is older later on shows that history was taken back.
func (g *gate) read(ctx context.Context) (mirror.View, error) {
	resp, err := g.list(ctx)
	if err != nil {
		return mirror.View{}, err
	}
	v := mirror.Read(g.keys, g.fixed, resp.Kvs, resp.Header.Revision)
	g.report(v.Foreign)
	if len(resp.Kvs) > 0 && string(resp.Kvs[0].Key) == g.keys.Limit && !v.Damaged {
		_, _ = g.limit.Learn(resp.Kvs[0])
	}
	return v, nil
}

// open runs a call that ends when the session is closed, with ErrClosed then.
func (g *gate) open(ctx context.Context, call func(context.Context) error) error {
	return g.sess.Do(ctx, call)
}

// get reads one key, linearizably.
func (g *gate) get(ctx context.Context, key string) ([]*mvccpb.KeyValue, error) {
	return g.sess.Get(ctx, key)
}

// list reads the range of the queue and its limit.
func (g *gate) list(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	opts = append([]clientv3.OpOption{clientv3.WithPrefix()}, opts...)
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
		return g.sess.KV().Get(call, g.keys.Range, opts...)
	})
	if err == nil {
		g.sess.See(resp.Header.Revision)
	}
	return resp, err
}

// report warns, at most once a minute, of keys that do not belong there.
func (g *gate) report(foreign int) {
	if foreign == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.checked) > time.Minute {
		g.checked = time.Now()
		g.sess.Log().Warn("foreign keys in the range of a queue are ignored", zap.String("name", g.name), zap.Int("keys", foreign))
	}
}
