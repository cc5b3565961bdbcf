package concurrency

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// read lists the queue and its limit, at one revision. That revision counts as met: a
// view of the queue that is older later on shows that history was taken back.
func (q *sessionQueue) read(ctx context.Context) (mirror.View, error) {
	l, err := q.list(ctx)
	if err != nil {
		return mirror.View{}, err
	}
	v := mirror.Read(q.keys, q.limit.Fixed(), mirror.ReadStored(l.records.Base), l.all(), l.revision)
	q.report(v.Foreign)
	if !v.Damaged {
		_, _, _ = q.limit.Learn(l.records)
	}
	return v, nil
}

// listing is the range of a queue with the default limit, as of one revision.
type listing struct {
	records  limit.Records
	requests []*mvccpb.KeyValue // the other keys
	count    int64              // of the other keys, those included that were not read
	revision int64
}

// all are the keys of the range.
func (l listing) all() []*mvccpb.KeyValue {
	if l.records.Own == nil {
		return l.requests
	}
	return append([]*mvccpb.KeyValue{l.records.Own}, l.requests...)
}

// list reads the range of the queue, and the limits.
func (q *sessionQueue) list(ctx context.Context, opts ...clientv3.OpOption) (l listing, err error) {
	opts = append([]clientv3.OpOption{clientv3.WithPrefix()}, opts...)
	var found *etcdserverpb.RangeResponse
	if q.base == nil {
		resp, err := q.sess.Read(ctx, q.keys.Range, opts...)
		if err != nil {
			return l, err
		}
		found, l.revision = (*etcdserverpb.RangeResponse)(resp), resp.Header.Revision
	} else {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
			return q.sess.KV().Txn(call).Then(clientv3.OpGet(q.keys.Range, opts...), clientv3.OpGet(q.base.Key)).Commit()
		})
		if err != nil {
			return l, err
		}
		found, l.revision = resp.Responses[0].GetResponseRange(), resp.Header.Revision
		l.records.Base = limit.First(resp.Responses[1])
	}
	q.sess.See(l.revision)
	l.requests, l.count = found.Kvs, found.Count
	if len(found.Kvs) > 0 && string(found.Kvs[0].Key) == q.keys.Limit {
		l.records.Own, l.requests, l.count = found.Kvs[0], found.Kvs[1:], l.count-1
	}
	return l, nil
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
