package mirror

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// AwaitGone follows the key of one request until that is gone, or ctx ends.
func AwaitGone(ctx context.Context, s *Source, key string, token int64) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	s.Follow(ctx, key, token, &oneKey{key, token, gone})
}

// oneKey is a Handler for the key of one request.
type oneKey struct {
	key   string
	token int64
	gone  func() // is called when it is gone
}

// Reset implements Handler.
func (k *oneKey) Reset(kvs []*mvccpb.KeyValue, _ int64) {
	for _, kv := range kvs {
		if string(kv.Key) == k.key && k.lives(kv) {
			return
		}
	}
	k.gone()
}

// Apply implements Handler.
func (k *oneKey) Apply(events []*clientv3.Event, _ int64) {
	for _, ev := range events {
		if string(ev.Kv.Key) == k.key && (ev.Type == clientv3.EventTypeDelete || !k.lives(ev.Kv)) {
			k.gone()
		}
	}
}

// lives reports whether the key is still the request's. Without a lease it has no owner.
func (k *oneKey) lives(kv *mvccpb.KeyValue) bool {
	return kv.CreateRevision == k.token && kv.Lease != 0
}
