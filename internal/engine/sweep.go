package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// sweeps removes, about once per TTL, the keys on the epoch's lease that belong to
// none of its requests, until the epoch ends: those of one request, if it is the only one of its Txn,
// by one Txn.
//
// There should be no such thing. But clientv3 sends a Txn once more, unasked and
// unseen, when a proxy or a stopping member answers it with "cancelled". The copy that
// is answered is settled and maybe long released when the other one arrives, with
// conditions that are met again. Only the session can recognise it: it has no such request.
func (e *Epoch) sweeps() {
	for {
		t := time.NewTimer(e.sess.opts.TTL/2 + rand.N(e.sess.opts.TTL))
		select {
		case <-t.C:
			e.sweep(e.ctx)
		case <-e.ctx.Done():
			t.Stop()
			return
		}
	}
}

func (e *Epoch) sweep(ctx context.Context) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := e.sess.etcd.TimeToLive(call, clientv3.LeaseID(e.lease.ID()), clientv3.WithAttachedKeys())
	if err != nil {
		return // next time
	}
	found := map[int64][]string{} // by create revision: the keys of one request were written in one Txn, maybe with others
	for _, k := range resp.Keys {
		key := string(k)
		if !e.sess.space.Queued(key) || e.slots.owns(key) {
			continue
		}
		kvs, err := e.sess.Get(ctx, key)
		// A request that is made from now on has a greater token than what was
		// read; one that was made before is known here.
		if err != nil || len(kvs) == 0 || kvs[0].Lease != e.lease.ID() || e.slots.owns(key) {
			continue
		}
		token := kvs[0].CreateRevision
		found[token] = append(found[token], key)
	}
	for token, all := range found {
		for keys := range slices.Chunk(all, sweptAtOnce) {
			removal, err := e.sess.Remove(ctx, Stored{Key: keys[0], Token: token, Also: keys[1:]})
			switch {
			case err != nil && ctx.Err() == nil:
				e.sess.opts.Log.Warn("the session cannot remove a late copy of an earlier request, which no call waits for; it repeats that",
					zap.Strings("keys", keys), zap.Error(e.sess.Explain(err)))
			case err == nil && removal != commit.Absent:
				e.sess.opts.Log.Warn("the session removed a late copy of an earlier request, which no call waits for", zap.Strings("keys", keys))
			}
		}
	}
}

// sweptAtOnce bounds the keys that one Txn removes. etcd accepts 128 operations in a Txn.
const sweptAtOnce = 64
