// Package queue is one queue in etcd: what a session reads of it, and what it learns by that.
package queue

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
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Reader reads what is in etcd of one queue. It has no state but what it has learned of it, and when it
// last warned of foreign keys. It is safe for concurrent use.
type Reader struct {
	Name    string // for the log
	KV      clientv3.KV
	Keys    keyspace.Queue
	Limit   limit.Setting
	Default string         // the key of the default limit, or empty
	View    *mirror.Shared // that of all callers of the session
	See     func(revision int64)
	Log     *zap.Logger

	foreign foreignKeys
	warned  foreignWarnings
}

// Read lists the queue and its limit, at one revision. That revision counts as met: a
// view of the queue that is older later on shows that history was taken back.
func (r *Reader) Read(ctx context.Context) (mirror.View, error) {
	l, err := r.List(ctx)
	if err != nil {
		return mirror.View{}, err
	}
	v := mirror.Read(r.Keys, r.Limit.Fixed(), mirror.ReadLimitRecord(l.Records.Base), l.all(), l.Revision)
	if r.warned.due(v.Foreign) {
		r.Log.Warn("foreign keys in the range of a queue are ignored", zap.String("name", r.Name), zap.Int("keys", v.Foreign))
	}
	if !v.Damaged {
		_, _, _ = r.Limit.Learn(l.Records)
	}
	return v, nil
}

// Set changes the limit, if it is stored: see limit.Store.
func (r *Reader) Set(ctx context.Context, to limit.Change, create bool) error {
	return r.Limit.Set(ctx, to, create, r.Read)
}

// Listing is the range of a queue with the default limit, as of one revision.
type Listing struct {
	Records  limit.Records
	Requests []*mvccpb.KeyValue // the other keys
	Count    int64              // of the other keys, those included that were not read
	Revision int64
}

// all are the keys of the range.
func (l Listing) all() []*mvccpb.KeyValue {
	if l.Records.Own == nil {
		return l.Requests
	}
	return append([]*mvccpb.KeyValue{l.Records.Own}, l.Requests...)
}

// List reads the range of the queue, and the limits.
func (r *Reader) List(ctx context.Context, opts ...clientv3.OpOption) (l Listing, err error) {
	opts = append([]clientv3.OpOption{clientv3.WithPrefix()}, opts...)
	var found *etcdserverpb.RangeResponse
	if r.Default == "" {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
			return r.KV.Get(call, r.Keys.Range, opts...)
		})
		if err != nil {
			return l, err
		}
		found, l.Revision = (*etcdserverpb.RangeResponse)(resp), resp.Header.Revision
	} else {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
			return r.KV.Txn(call).Then(clientv3.OpGet(r.Keys.Range, opts...), clientv3.OpGet(r.Default)).Commit()
		})
		if err != nil {
			return l, err
		}
		found, l.Revision = resp.Responses[0].GetResponseRange(), resp.Header.Revision
		l.Records.Base = limit.First(resp.Responses[1])
	}
	r.See(l.Revision)
	l.Records.At = l.Revision
	l.Requests, l.Count = found.Kvs, found.Count
	if len(found.Kvs) > 0 && string(found.Kvs[0].Key) == r.Keys.Limit {
		l.Records.Own, l.Requests, l.Count = found.Kvs[0], found.Kvs[1:], l.Count-1
	}
	return l, nil
}

// foreignWarnings bounds the warnings of keys that do not belong in a queue.
type foreignWarnings struct {
	mu       sync.Mutex
	reported time.Time
}

// due reports whether so many of them are to be reported: at most once a minute.
func (f *foreignWarnings) due(keys int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keys == 0 || time.Since(f.reported) <= time.Minute {
		return false
	}
	f.reported = time.Now()
	return true
}

// Find returns the request of the queue with a token.
func (r *Reader) Find(ctx context.Context, token int64) (mirror.Request, bool, error) {
	v, err := r.Read(ctx)
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

// Unchanged is the condition that no request has come since a revision, and that the limit is still that of
// those records.
func (r *Reader) Unchanged(revision int64, limits limit.Revs) []clientv3.Cmp {
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(r.Keys.Requests), "<", revision+1).WithPrefix()}
	return append(cmps, r.Limit.Unchanged(limits)...)
}

// Forget forgets what was learned: a revision may be that of another state by now.
func (r *Reader) Forget() {
	r.Limit.Forget()
	r.foreign.forget()
}
