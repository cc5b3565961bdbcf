package limit

import (
	"context"
	"errors"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Base is the default limit of the keys of a limiter. It is safe for concurrent use.
type Base struct {
	KV  clientv3.KV
	Key string
	// Total says that the keys share a total. It is stored with the default.
	Total bool
	By    Author      // of what it stores
	See   func(int64) // is called with each revision that is met
	// Met is called with each default that a Store learns. It may be nil.
	Met func(*mvccpb.KeyValue)

	seen atomic.Pointer[Limit]
}

func (b *Base) get() clientv3.Op { return clientv3.OpGet(b.Key) }

// Seen returns the default that was seen last, or nil.
func (b *Base) Seen() *Limit { return b.seen.Load() }

// Forget forgets it: etcd's history was taken back.
func (b *Base) Forget() { b.seen.Store(nil) }

// Read returns the stored default. ok is false if there is none.
func (b *Base) Read(ctx context.Context) (l Limit, ok bool, err error) {
	_, l, ok, err = b.read(ctx)
	return l, ok, err
}

func (b *Base) read(ctx context.Context) (r mirror.LimitRecord, l Limit, ok bool, err error) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) { return b.KV.Get(call, b.Key) })
	if err != nil || len(resp.Kvs) == 0 {
		return r, Limit{}, false, err
	}
	if r = b.Learn(resp.Kvs[0]); r.Damaged {
		return r, Limit{}, false, Unreadable(r)
	}
	return r, limitOf(r), true, nil
}

func limitOf(r mirror.LimitRecord) Limit {
	return Limit{N: r.Limit.Limit, Initial: r.Initial, Lowered: r.Previous > 0, Total: r.Total, Revs: Revs{Base: r.Rev}}
}

// Learn returns the default that was read, and remembers it.
func (b *Base) Learn(kv *mvccpb.KeyValue) mirror.LimitRecord {
	r := mirror.ReadLimitRecord(kv)
	if !r.Damaged {
		b.saw(r)
	}
	return r
}

// saw remembers a default, unless a later one was seen.
func (b *Base) saw(r mirror.LimitRecord) {
	b.See(r.Rev)
	l := limitOf(r)
	for {
		last := b.seen.Load()
		if last != nil && last.Revs.Base >= r.Rev || b.seen.CompareAndSwap(last, &l) {
			return
		}
	}
}

// Init stores a default of n if there is none, and returns the one that is stored then. If another
// one was seen before, that is stored: it was deleted by hand. A default divides no rate.
func (b *Base) Init(ctx context.Context, n int64, _ record.Rate) (Limit, error) {
	r := record.Limit{Limit: n, Total: b.Total, Initial: true, Settled: true}
	if seen := b.Seen(); seen != nil {
		r.Limit, r.Initial, r.Total = seen.N, seen.Initial, seen.Total
	}
	for {
		if l, ok, err := b.Read(ctx); ok || err != nil {
			return l, err
		}
		r = sign(ctx, r, b.By)
		if _, _, err := commit.Swap(ctx, b.KV, b.Key, 0, r.Encode(), isOf(r)); err != nil && !errors.Is(err, commit.ErrConflict) {
			return Limit{}, err
		}
	}
}

// Set changes the default by compare-and-set. It returns ErrNone if none is stored, unless create
// is set.
func (b *Base) Set(ctx context.Context, n int64, create bool) error {
	for {
		stored, _, ok, err := b.read(ctx)
		if err != nil {
			return err
		}
		if !ok && !create {
			return ErrNone
		}
		if seen := b.Seen(); !ok && seen != nil {
			stored.Total = seen.Total
		} else if !ok {
			stored.Total = b.Total
		}
		r := sign(ctx, changeBase(stored.Limit, n), b.By)
		rev, _, err := commit.Swap(ctx, b.KV, b.Key, stored.Rev, r.Encode(), isOf(r))
		if errors.Is(err, commit.ErrConflict) {
			continue
		}
		if err == nil {
			replaced(ctx, stored.Limit, ok)
		}
		if rev > 0 {
			b.saw(mirror.LimitRecord{Limit: r, Rev: rev})
		}
		return err
	}
}
