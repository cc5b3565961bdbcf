package concurrency

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// reader reads what is in etcd of one queue. It has no state but what it has learned of it.
type reader struct {
	sess  *engine.Session
	name  string
	keys  keyspace.Queue
	limit limit.Kind
	base  *base          // the default limit, or nil
	view  *mirror.Shared // that of all callers of the session

	strays  strays
	foreign foreign
}

// read lists the queue and its limit, at one revision. That revision counts as met: a
// view of the queue that is older later on shows that history was taken back.
func (r *reader) read(ctx context.Context) (mirror.View, error) {
	l, err := r.list(ctx)
	if err != nil {
		return mirror.View{}, err
	}
	v := mirror.Read(r.keys, r.limit.Fixed(), mirror.ReadStored(l.records.Base), l.all(), l.revision)
	if r.foreign.due(v.Foreign) {
		r.sess.Log().Warn("foreign keys in the range of a queue are ignored", zap.String("name", r.name), zap.Int("keys", v.Foreign))
	}
	if !v.Damaged {
		_, _, _ = r.limit.Learn(l.records)
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
func (r *reader) list(ctx context.Context, opts ...clientv3.OpOption) (l listing, err error) {
	opts = append([]clientv3.OpOption{clientv3.WithPrefix()}, opts...)
	var found *etcdserverpb.RangeResponse
	if r.base == nil {
		resp, err := r.sess.Read(ctx, r.keys.Range, opts...)
		if err != nil {
			return l, err
		}
		found, l.revision = (*etcdserverpb.RangeResponse)(resp), resp.Header.Revision
	} else {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
			return r.sess.KV().Txn(call).Then(clientv3.OpGet(r.keys.Range, opts...), clientv3.OpGet(r.base.Key)).Commit()
		})
		if err != nil {
			return l, err
		}
		found, l.revision = resp.Responses[0].GetResponseRange(), resp.Header.Revision
		l.records.Base = limit.First(resp.Responses[1])
	}
	r.sess.See(l.revision)
	l.requests, l.count = found.Kvs, found.Count
	if len(found.Kvs) > 0 && string(found.Kvs[0].Key) == r.keys.Limit {
		l.records.Own, l.requests, l.count = found.Kvs[0], found.Kvs[1:], l.count-1
	}
	return l, nil
}

// foreign are the keys of a queue that do not belong there.
type foreign struct {
	mu       sync.Mutex
	reported time.Time
}

// due reports whether so many of them are to be reported: at most once a minute.
func (f *foreign) due(keys int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keys == 0 || time.Since(f.reported) <= time.Minute {
		return false
	}
	f.reported = time.Now()
	return true
}

// find returns the request of the queue with a token.
func (r *reader) find(ctx context.Context, token int64) (mirror.Request, bool, error) {
	v, err := r.read(ctx)
	if err != nil {
		return mirror.Request{}, false, err
	}
	all := v.Requests()
	at := slices.IndexFunc(all, func(o mirror.Request) bool { return o.Create == token })
	if at < 0 {
		return mirror.Request{}, false, nil
	}
	return all[at], true, nil
}
