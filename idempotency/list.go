package idempotency

import (
	"context"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Filter selects records. The zero value selects all.
type Filter struct {
	// Scope selects the records of one scope, and no others are read; new("") selects those
	// without a scope, of a store with SingleTenant. Defaults to nil, all scopes.
	Scope *string
	// State selects the records in that state. Defaults to 0, all states.
	State State
}

// pageSize is how many keys are read at once. What a Record shows is in front of the result, in
// one value of up to 128 KiB, so a page has 4 MiB at most.
const pageSize = 32

// List returns the records that f selects, in no particular order. It reads page by page, at most
// 32 records at once, and fewer if the client does not accept such answers
// (clientv3.Config.MaxCallRecvMsgSize); a record that changes meanwhile may be listed or not. If it
// fails, it yields ErrClosed, an error of etcd's or ctx's, or one of the client's for a record
// larger than it accepts, and ends.
func (s *Store) List(ctx context.Context, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		from := s.keys.Records()
		if f.Scope != nil {
			from = s.keys.Scope(*f.Scope)
		}
		l := listing{store: s, from: from, end: clientv3.GetPrefixRangeEnd(from), page: pageSize}
		for !l.done {
			records, err := l.next(ctx)
			for _, r := range records {
				if (f.State == 0 || r.State == f.State) && !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(Record{}, s.about(ctx, "list records", err))
				return
			}
		}
	}
}

// listing reads a range of records.
type listing struct {
	store     *Store
	from, end string // what is left of the range
	page      int64  // how many keys to read at once
	done      bool
}

// next returns the records of the next page.
func (l *listing) next(ctx context.Context) (records []Record, err error) {
	if err := l.store.closed(); err != nil {
		return nil, err
	}
	resp, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	kvs := resp.Kvs
	for i, kv := range kvs {
		e, claim, ok := l.store.keys.ParseEntry(string(kv.Key))
		if !ok || claim {
			continue
		}
		var st state
		switch last := i == len(kvs)-1 && resp.More; {
		case last && i > 0:
			kvs = kvs[:i] // its claim may be on the next page
		case last: // it fills a page by itself
			if st, err = l.store.read(ctx, e, true); err != nil {
				return records, err
			}
		default:
			st.take(kvs[i:min(len(kvs), i+2)], e)
		}
		if st.kv != nil { // it is not left for the next page, nor was it deleted meanwhile
			records = append(records, describe(e, st))
		}
	}
	if l.done = !resp.More; resp.More {
		l.from = string(kvs[len(kvs)-1].Key) + "\x00"
	}
	return records, nil
}

func (l *listing) get(ctx context.Context) (*clientv3.GetResponse, error) {
	for {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
			return l.store.client.Get(call, l.from, clientv3.WithRange(l.end), clientv3.WithLimit(l.page))
		})
		if !commit.TooLarge(err) || l.page == 1 {
			return resp, err
		}
		l.page /= 2
	}
}

func describe(e keyspace.Entry, st state) Record {
	r := st.rec
	out := Record{Ref: Ref(e.Ref), Revision: st.mod(), State: Unreadable}
	if st.bad {
		return out
	}
	out.Scope, out.Op, out.Attempt, out.Token, out.Owner = r.Scope, r.Op, r.Number, r.Token, r.Owner
	out.Failure, out.Bytes, out.Omitted = r.Error, r.Size, r.Omitted
	out.Refuse, out.Resolved = r.Refuse, r.By
	if r.StartMS != 0 {
		out.Started = time.UnixMilli(r.StartMS)
	}
	if r.EndMS != 0 {
		out.Ended = time.UnixMilli(r.EndMS)
	}
	switch {
	case r.State == record.AttemptDone:
		out.State = Done
	case r.State == record.AttemptFailed:
		out.State = Failed
	case r.State == record.AttemptReleased:
		out.State = Released
	case st.claim:
		out.State = InProgress
	default:
		out.State = Unknown
	}
	return out
}
