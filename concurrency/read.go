package concurrency

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/mirror"
)

// read lists the queue and its limit, at one revision. That revision counts as met: a
// view of the queue that is older later on shows that history was taken back.
func (q *sessionQueue) read(ctx context.Context) (mirror.View, error) {
	resp, err := q.list(ctx)
	if err != nil {
		return mirror.View{}, err
	}
	v := mirror.Read(q.keys, q.fixed, resp.Kvs, resp.Header.Revision)
	q.report(v.Foreign)
	if len(resp.Kvs) > 0 && string(resp.Kvs[0].Key) == q.keys.Limit && !v.Damaged {
		_, _ = q.limit.Learn(resp.Kvs[0])
	}
	return v, nil
}

// list reads the range of the queue and its limit.
func (q *sessionQueue) list(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := q.sess.Read(ctx, q.keys.Range, append(opts, clientv3.WithPrefix())...)
	if err == nil {
		q.sess.See(resp.Header.Revision)
	}
	return resp, err
}

// report warns, at most once a minute, of keys that do not belong there.
func (q *sessionQueue) report(foreign int) {
	if foreign == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.checked) > time.Minute {
		q.checked = time.Now()
		q.sess.Log().Warn("foreign keys in the range of a queue are ignored", zap.String("name", q.name), zap.Int("keys", foreign))
	}
}
