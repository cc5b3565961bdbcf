package concurrency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// open runs a call that ends when the session is closed, with ErrClosed then.
func (g *gate) open(ctx context.Context, call func(context.Context) error) error {
	return g.sess.Do(ctx, call)
}

// get reads one key, linearizably.
func (g *gate) get(ctx context.Context, key string) ([]*mvccpb.KeyValue, error) {
	return g.sess.Get(ctx, key)
}

// readLimit returns the stored limit, or known = false if there is none.
func (g *gate) readLimit(ctx context.Context) (limit seenLimit, known bool, err error) {
	kvs, err := g.get(ctx, g.keys.Limit)
	if err != nil || len(kvs) == 0 {
		return seenLimit{}, false, err
	}
	limit, err = g.learnLimit(kvs[0])
	return limit, err == nil, err
}

// learnLimit reads the stored limit and remembers it. It is looked at with each
// request but seldom changes, so it is decoded once per revision.
func (g *gate) learnLimit(kv *mvccpb.KeyValue) (seenLimit, error) {
	if seen := g.limit.Load(); seen != nil && seen.revision == kv.ModRevision && seen.value == string(kv.Value) {
		return *seen, nil
	}
	r, ok := mirror.ReadLimit(kv)
	if !ok {
		return seenLimit{}, errLimit
	}
	return g.saw(r, string(kv.Value), kv.ModRevision), nil
}

// saw remembers the limit that was stored at a revision.
func (g *gate) saw(r record.Limit, value string, revision int64) seenLimit {
	saw := seenLimit{limit: r.Limit, initial: r.Initial, lowered: r.Previous > 0, value: value, revision: revision}
	g.sess.See(revision)
	for {
		seen := g.limit.Load()
		if seen != nil && seen.revision >= revision || g.limit.CompareAndSwap(seen, &saw) {
			return saw
		}
	}
}

// storeLimit stores a limit if there is none, and returns the one that is stored
// then. If this process has seen another limit before, that one is stored: somebody
// has deleted it by hand.
func (g *gate) storeLimit(ctx context.Context, limit int64) (seenLimit, error) {
	initial := true
	if seen := g.limit.Load(); seen != nil {
		limit, initial = seen.limit, seen.initial
	}
	for {
		r, mine := g.newLimit(limit)
		r.Settled, r.Initial = true, initial
		_, _, err := commit.Swap(ctx, g.sess.KV(), g.keys.Limit, 0, r.Encode(), mine)
		if err != nil && !errors.Is(err, commit.ErrConflict) {
			return seenLimit{}, err
		}
		if stored, known, err := g.readLimit(ctx); known || err != nil {
			return stored, err
		}
	}
}

func (g *gate) newLimit(limit int64) (r record.Limit, mine func([]byte) bool) {
	r = record.Limit{Limit: limit, Nonce: rand.Text(), By: g.sess.Holder(), AtMS: time.Now().UnixMilli()}
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
// between, all who may have been admitted count as holders. The next change tries
// to settle that first, and hands it on if it cannot.
//
// A limit is stored for a new name only if create says so. A name of which this session
// has seen a limit, or that has live requests, is not new. That is decided at the revision
// of the read: if a limit was stored then, the change is made only if it still is.
func (g *gate) setLimit(ctx context.Context, limit int64, create bool) error {
	tried := int64(0)
	for {
		v, err := g.read(ctx)
		if err != nil {
			return err
		}
		if v.Damaged { // replaced by deleting it by hand, not by chance
			return errLimit
		}
		if !create && !v.Known && len(v.Holders) == 0 && g.limit.Load() == nil {
			return fmt.Errorf("%w, and no request exists: if the name is right, pass CreateLimit", ErrNoLimit)
		}
		if v.Record.Unsettled() && v.LimitRev != tried {
			tried = v.LimitRev
			g.settleLimit(ctx, v.Record, v.LimitRev, nil)
			continue
		}
		r, mine := g.newLimit(limit)
		r.Through = v.Through
		if v.Record.Unsettled() {
			r.Previous = v.Record.Previous
		}
		lowers := v.Known && limit < v.Limit
		if lowers {
			r.Previous = max(r.Previous, v.Limit)
		}
		r.Settled = r.Previous == 0 // whoever was admitted fits or is within Through
		rev, read, err := commit.Swap(ctx, g.sess.KV(), g.keys.Limit, v.LimitRev, r.Encode(), mine,
			clientv3.OpGet(g.keys.Queue, clientv3.WithPrefix()))
		if errors.Is(err, commit.ErrConflict) {
			continue
		}
		if err != nil || rev == 0 { // 0: another change came just after it
			return err
		}
		g.saw(r, r.Encode(), rev)
		switch {
		case !lowers || v.Record.Unsettled():
		case read == nil: // found applied after a lost answer
			g.settleLimit(ctx, r, rev, nil)
		default:
			old := &mvccpb.KeyValue{Key: []byte(g.keys.Limit), Value: []byte(v.Record.Encode()), ModRevision: v.LimitRev}
			g.settleLimit(ctx, r, rev, append(read[0].GetResponseRange().Kvs, old))
		}
		return nil
	}
}

// settleLimit makes the record of a limit that was lowered at a revision exact, from
// the queue and limit just before that; they are looked up if before is nil. If it
// fails, the record errs on the side of telling too many as holders.
func (g *gate) settleLimit(ctx context.Context, r record.Limit, rev int64, before []*mvccpb.KeyValue) {
	if before == nil {
		call, cancel := commit.Call(ctx)
		defer cancel()
		resp, err := g.sess.KV().Get(call, g.keys.Range, clientv3.WithPrefix(), clientv3.WithRev(rev-1))
		if err != nil { // compacted, for instance
			return
		}
		before = resp.Kvs
	}
	v := mirror.Read(g.keys, 0, before, rev)
	if v.Record.Unsettled() || !v.Known {
		return
	}
	r.Through = max(r.Through, v.Through)
	r.Settled, r.Nonce = true, rand.Text()
	_, _, _ = commit.Swap(ctx, g.sess.KV(), g.keys.Limit, rev, r.Encode(), func(b []byte) bool {
		found, ok := record.DecodeLimit(b)
		return ok && found.Nonce == r.Nonce
	})
}
