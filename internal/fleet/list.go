package fleet

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// How many keys are read at once. Values are small, but for the records of requests, each of which
// may contain a result of up to 128 KiB.
const (
	pageSize   = 1000
	fewRecords = 32
	manyAtOnce = 256
	lightPage  = 1 << 20 // bytes of a page after which the next one may have twice as many records
)

// listing reads the keys of a namespace as of one revision, that of its first read.
type listing struct {
	kv       clientv3.KV
	revision int64
	page     int64
	put      func(*mvccpb.KeyValue)
	answered func() // is called after the first answer
}

// list reads the namespace, or what has one of the prefixes, none of which is that of a store. It begins again if the
// revision of the listing is compacted meanwhile.
func (f *Fleet) list(ctx context.Context, prefixes ...string) (fresh *State, revision int64, err error) {
	var pause commit.Backoff
	for {
		fresh, revision, err = f.listOnce(ctx, prefixes...)
		if !errors.Is(err, rpctypes.ErrCompacted) || pause.Wait(ctx, nil) != nil {
			return fresh, revision, err
		}
	}
}

func (f *Fleet) listOnce(ctx context.Context, prefixes ...string) (fresh *State, revision int64, err error) {
	fresh = NewState(f.space, f.opts.Details)
	// All that is read was written before the first answer. An earlier time would have the clock ahead of each process
	// that has written while etcd was slow to answer.
	var now int64
	l := &listing{kv: f.kv, page: f.page, put: func(kv *mvccpb.KeyValue) { fresh.Put(kv, now) }, answered: func() { now = f.now() }}
	for _, prefix := range prefixes {
		if err := l.all(ctx, prefix, clientv3.GetPrefixRangeEnd(prefix)); err != nil {
			return nil, 0, err
		}
	}
	if prefixes != nil {
		fresh.revision = l.revision
		return fresh, l.revision, nil
	}
	stores, end := f.space.Stores(), clientv3.GetPrefixRangeEnd(f.space.Root())
	afterStores := clientv3.GetPrefixRangeEnd(stores)
	if err := l.all(ctx, f.space.Root(), stores); err != nil {
		return nil, 0, err
	}
	for from := stores; from != ""; {
		if from, err = l.store(ctx, fresh, from, afterStores); err != nil {
			return nil, 0, err
		}
	}
	if err := l.all(ctx, afterStores, end); err != nil {
		return nil, 0, err
	}
	fresh.revision = l.revision
	return fresh, l.revision, nil
}

// store reads the keys of the first store in a range, without the values of parts of results. It
// returns where the next one begins, or "".
func (l *listing) store(ctx context.Context, fresh *State, from, end string) (next string, err error) {
	resp, err := l.get(ctx, from, end, 1, clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	first := string(resp.Kvs[0].Key)
	name, ok := fresh.space.ParseStore(first)
	if !ok {
		l.put(resp.Kvs[0])
		return first + "\x00", nil
	}
	keys := fresh.space.Store(name)
	records, after, next := keys.Records(), clientv3.GetPrefixRangeEnd(keys.Records()), clientv3.GetPrefixRangeEnd(keys.Range)
	if err = l.all(ctx, keys.Range, records, clientv3.WithKeysOnly()); err == nil {
		err = l.records(ctx, records, after)
	}
	if err == nil {
		err = l.all(ctx, after, next, clientv3.WithKeysOnly())
	}
	return next, err
}

// all reads a range, a full page at once.
func (l *listing) all(ctx context.Context, from, end string, opts ...clientv3.OpOption) error {
	return l.pages(ctx, from, end, l.page, l.page, opts...)
}

// records reads a range of records, as many at once as their size allows.
func (l *listing) records(ctx context.Context, from, end string) error {
	return l.pages(ctx, from, end, min(fewRecords, l.page), min(manyAtOnce, l.page))
}

// pages reads a range, so many keys at once at first, and at most.
func (l *listing) pages(ctx context.Context, from, end string, page, most int64, opts ...clientv3.OpOption) error {
	span := keyspace.NewSpan(from, end)
	for {
		from, end := span.Range()
		resp, err := l.get(ctx, from, end, page, opts...)
		if commit.TooLarge(err) {
			if page == 1 { // its value cannot be read, and is not needed
				resp, err = l.get(ctx, from, end, 1, clientv3.WithKeysOnly())
			} else {
				page = max(1, page/2)
				continue
			}
		}
		if err != nil {
			return err
		}
		size := 0
		for _, kv := range resp.Kvs {
			size += len(kv.Value)
			l.put(kv)
		}
		if resp.More {
			span.Advance(string(resp.Kvs[0].Key), string(resp.Kvs[len(resp.Kvs)-1].Key))
		} else if span.Finish() {
			return nil
		}
		if size < lightPage {
			page = min(2*page, most)
		} else {
			page = max(1, page/2)
		}
	}
}

// get reads the first keys of a range as of the revision of the listing.
func (l *listing) get(ctx context.Context, from, end string, limit int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := l.kv.Get(call, from, append([]clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(l.revision)}, opts...)...)
	if err == nil && l.revision == 0 {
		l.revision = resp.Header.Revision
		l.answered()
	}
	return resp, err
}
