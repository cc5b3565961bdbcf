package concurrency

import (
	"context"
	"crypto/rand"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// get reads one key, linearizably.
func (g *gate) get(ctx context.Context, key string) ([]*mvccpb.KeyValue, error) {
	var pause commit.Backoff
	for {
		call, cancel := commit.Call(ctx)
		resp, err := g.sess.client.Get(call, key)
		cancel()
		if err == nil {
			return resp.Kvs, nil
		}
		if !commit.Transient(err) {
			return nil, err
		}
		if err := pause.Wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// readLimit returns the stored limit, or known = false if there is none.
func (g *gate) readLimit(ctx context.Context) (limit int64, known bool, err error) {
	kvs, err := g.get(ctx, g.keys.Limit)
	if err != nil || len(kvs) == 0 {
		return 0, false, err
	}
	limit, err = g.learnLimit(kvs[0])
	return limit, err == nil, err
}

// learnLimit reads the stored limit and remembers it. It is looked at with each
// request but seldom changes, so it is decoded once per revision.
func (g *gate) learnLimit(kv *mvccpb.KeyValue) (int64, error) {
	seen := g.limit.Load()
	if seen != nil && seen.revision == kv.ModRevision {
		return seen.limit, nil
	}
	r, ok := record.DecodeLimit(kv.Value)
	if !ok {
		return 0, errLimit
	}
	if seen == nil || seen.revision < kv.ModRevision {
		g.limit.Store(&seenLimit{limit: r.Limit, revision: kv.ModRevision})
	}
	return r.Limit, nil
}

// lastLimit returns the limit as this process last saw it, 0 if it never did.
func (g *gate) lastLimit() int64 {
	if seen := g.limit.Load(); seen != nil {
		return seen.limit
	}
	return 0
}

// storeLimit stores a limit if there is none, and returns the one that is stored
// then.
func (g *gate) storeLimit(ctx context.Context, limit int64) (int64, error) {
	for {
		r, mine := g.newLimit(limit)
		r.Settled = true
		_, _, err := commit.Swap(ctx, g.sess.client, g.keys.Limit, 0, r.Encode(), mine)
		if err != nil && !errors.Is(err, commit.ErrConflict) {
			return 0, err
		}
		stored, known, err := limit, true, error(nil)
		if stored, known, err = g.readLimit(ctx); known || err != nil {
			return stored, err
		}
	}
}

func (g *gate) newLimit(limit int64) (r record.Limit, mine func([]byte) bool) {
	r = record.Limit{Limit: limit, Nonce: rand.Text(), By: g.sess.opts.Holder, AtMS: nowMS()}
	return r, func(b []byte) bool {
		found, ok := record.DecodeLimit(b)
		return ok && found.Nonce == r.Nonce
	}
}

// setLimit changes the limit by compare-and-set.
//
// After the limit was lowered it no longer tells who had been admitted before. So
// the record says up to which token that was. What was read before the change
// cannot tell it exactly, since a waiter may have been admitted in between; the
// queue is therefore read once more in the Txn of the change, and the exact token
// is added to the record right after it. Until then, and if this process dies in
// between, all who may have been admitted count as holders.
func (g *gate) setLimit(ctx context.Context, limit int64) error {
	for {
		v, err := g.read(ctx)
		if err != nil {
			return err
		}
		if !v.Known && v.LimitRev == 0 && v.Foreign > 0 {
			// An unreadable record may stand there. It is replaced by
			// deleting it by hand, not by chance.
			if kvs, err := g.get(ctx, g.keys.Limit); err != nil || len(kvs) > 0 {
				return errors.Join(err, errLimit)
			}
		}
		r, mine := g.newLimit(limit)
		r.Through = v.Through
		lowers := v.Known && limit < v.Limit
		if lowers {
			r.Previous = v.Limit
		} else {
			r.Settled = true // whoever was admitted fits or is within Through
		}
		rev, read, err := commit.Swap(ctx, g.sess.client, g.keys.Limit, v.LimitRev, r.Encode(), mine,
			clientv3.OpGet(g.keys.Queue, clientv3.WithPrefix()))
		if errors.Is(err, commit.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		if lowers && read != nil {
			g.settleLimit(ctx, r, rev, v, read[0].GetResponseRange().Kvs)
		} else if lowers {
			// Found applied after a lost answer: look back to that revision.
			call, cancel := commit.Call(ctx)
			resp, err := g.sess.client.Get(call, g.keys.Queue, clientv3.WithPrefix(), clientv3.WithRev(rev))
			cancel()
			if err == nil {
				g.settleLimit(ctx, r, rev, v, resp.Kvs)
			}
		}
		return nil
	}
}

// settleLimit makes the record of a lowered limit exact. If it fails, the record
// errs on the side of telling too many as holders.
func (g *gate) settleLimit(ctx context.Context, r record.Limit, rev int64, before mirror.View, queue []*mvccpb.KeyValue) {
	old := &mvccpb.KeyValue{Key: []byte(g.keys.Limit), Value: []byte(before.Record.Encode()), ModRevision: before.LimitRev}
	r.Through = max(r.Through, mirror.Read(g.keys, 0, append(queue, old), rev).Through)
	r.Settled, r.Nonce = true, rand.Text()
	_, _, _ = commit.Swap(ctx, g.sess.client, g.keys.Limit, rev, r.Encode(), func(b []byte) bool {
		found, ok := record.DecodeLimit(b)
		return ok && found.Nonce == r.Nonce
	})
}
