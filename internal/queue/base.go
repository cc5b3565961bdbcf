package queue

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Base is the default limit of a limiter as one session uses it. It is watched as long as one of
// the limiter's queues is, and all mirrors of those receive it. It is safe for concurrent use.
type Base struct {
	limit.Base
	Adopted   limit.Adopted // the default
	HoldTimes HoldTimes     // of the permits of all keys
	sess      *engine.Session

	mu      sync.Mutex
	latest  mirror.LimitRecord
	mirrors map[*mirror.Mirror]struct{}
	stop    context.CancelFunc
}

// NewBase returns the default limit with that key. total says that the keys share a total.
func NewBase(sess *engine.Session, key string, total bool) *Base {
	b := &Base{
		Base: limit.Base{KV: sess.KV(), Key: key, Total: total, By: author(sess), See: sess.See},
		sess: sess, mirrors: map[*mirror.Mirror]struct{}{},
	}
	b.Met = b.met
	return b
}

// attach keeps the default of a mirror up to date until detach is called.
func (b *Base) attach(m *mirror.Mirror) (detach func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.SetBase(b.latest)
	b.mirrors[m] = struct{}{}
	if len(b.mirrors) == 1 {
		ctx, stop := context.WithCancel(b.sess.Context())
		b.stop = stop
		b.sess.Background(func() { b.sess.Source().Follow(ctx, b.Key, 0, b) })
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.mirrors, m); len(b.mirrors) == 0 {
			b.stop()
		}
	}
}

// Reset implements mirror.Handler for the key of the default.
func (b *Base) Reset(kvs []*mvccpb.KeyValue, _ int64) {
	for _, kv := range kvs {
		if string(kv.Key) == b.Key {
			b.met(kv)
			return
		}
	}
	b.restore()
}

// Apply implements mirror.Handler for the key of the default.
func (b *Base) Apply(events []*clientv3.Event, _ int64) {
	for _, ev := range events {
		switch {
		case string(ev.Kv.Key) != b.Key:
		case ev.Type == clientv3.EventTypeDelete:
			b.restore()
		default:
			b.met(ev.Kv)
		}
	}
}

// met hands a default that was read on to all mirrors, unless a later one is known.
func (b *Base) met(kv *mvccpb.KeyValue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kv == nil || kv.ModRevision <= b.latest.Rev {
		return
	}
	b.latest = b.Learn(kv)
	for m := range b.mirrors {
		m.SetBase(b.latest)
	}
}

// restore stores the default again, which was deleted by hand while requests wait.
func (b *Base) restore() {
	if b.Seen() == nil {
		return // it was never there
	}
	b.sess.Background(func() { _, _ = b.Init(b.sess.Context(), 0, record.Rate{}) })
}

// Rewound has the default forget what it has seen: etcd's history was taken back.
func (b *Base) Rewound() {
	b.Forget()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest = mirror.LimitRecord{}
}
