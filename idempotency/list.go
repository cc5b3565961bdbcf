package idempotency

import (
	"context"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
	// Refs selects these records, in this order, and no others are read. One that does not exist is
	// left out; one that is no reference is ErrInvalid. Scope has to be nil. Defaults to nil, all records.
	Refs []Ref
}

// How many keys are read at once. What a Record shows is in front of the result, in one value of up to
// 128 KiB, so a page of the first size has 4 MiB at most.
const (
	pageSize  = 32
	mostAPage = 256
	lightPage = 1 << 20 // bytes of a page up to which the next one is larger
)

// List returns the records that f selects, without Refs in no particular order. Where there are lost attempts, it
// reads once which sessions exist (Record.Alive). It reads page by page,
// 32 records at once, up to 256 while they are small, and fewer if the client does not accept such
// answers (clientv3.Config.MaxCallRecvMsgSize); a record that changes meanwhile may be listed or not.
// If it fails, it yields ErrInvalid, ErrClosed, an error of etcd's or ctx's, or one of the client's for
// a record larger than it accepts, and ends.
func (s *Store) List(ctx context.Context, f Filter) iter.Seq2[Record, error] {
	if f.Refs != nil {
		return listRefs(ctx, s, f)
	}
	return func(yield func(Record, error) bool) {
		from := s.keys.Records()
		if f.Scope != nil {
			from = s.keys.Scope(*f.Scope)
		}
		l := listing{store: s, living: living{sess: s.sess}, span: keyspace.NewSpan(from, clientv3.GetPrefixRangeEnd(from)), page: pageSize}
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
	store  *Store
	living living
	span   *keyspace.Span
	page   int64 // how many keys to read at once
	done   bool
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
	var entries []keyspace.Entry
	var states []state
	for _, kv := range resp.Kvs {
		if e, ok := l.store.keys.ParseEntry(string(kv.Key)); ok {
			st := state{majority: true}
			st.take([]*mvccpb.KeyValue{kv})
			entries, states = append(entries, e), append(states, st)
		}
	}
	if records, err = l.store.reader.describe(ctx, entries, states); err != nil {
		return nil, err
	}
	if resp.More {
		l.span.Advance(string(resp.Kvs[0].Key), string(resp.Kvs[len(resp.Kvs)-1].Key))
	} else {
		l.done = l.span.Finish()
	}
	l.size(resp.Kvs)
	return records, l.living.find(ctx, records)
}

// describe describes records as a majority has them. Those that were deleted meanwhile are left out.
func (r *reader) describe(ctx context.Context, entries []keyspace.Entry, states []state) (records []Record, err error) {
	if err := r.join(ctx, entries, states); err != nil {
		return nil, err
	}
	for i, st := range states {
		if st.kv != nil {
			records = append(records, describe(entries[i], st))
		}
	}
	return records, nil
}

// size sets how many keys are read at once after a page.
func (l *listing) size(page []*mvccpb.KeyValue) {
	bytes := 0
	for _, kv := range page {
		bytes += len(kv.Value)
	}
	if bytes <= lightPage {
		l.page = min(2*l.page, mostAPage)
	} else {
		l.page = max(min(l.page, pageSize), l.page/2)
	}
}

// listRefs is List of the records with these references.
func listRefs(ctx context.Context, s *Store, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var err error
		if f.Scope != nil {
			err = invalid("Filter has a Scope and Refs")
		}
		alive := living{sess: s.sess}
		for left, page := f.Refs, pageSize; len(left) > 0 && err == nil; {
			refs := left[:min(page, len(left))]
			var records []Record
			if records, err = getAll(ctx, s, refs); commit.TooLarge(err) && len(refs) > 1 {
				page, err = len(refs)/2, nil
				continue
			}
			if err == nil {
				err = alive.find(ctx, records)
			}
			left = left[len(refs):]
			for _, r := range records {
				if (f.State == 0 || r.State == f.State) && !yield(r, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Record{}, s.about(ctx, "list records", err))
		}
	}
}

// getAll returns those of some records that exist.
func getAll(ctx context.Context, s *Store, refs []Ref) (records []Record, err error) {
	if err := s.closed(); err != nil {
		return nil, err
	}
	entries, states, ops := make([]keyspace.Entry, len(refs)), make([]state, len(refs)), make([]clientv3.Op, 0, len(refs))
	for i, ref := range refs {
		if entries[i], err = entryOf(s.keys, ref); err != nil {
			return nil, err
		}
		ops = append(ops, clientv3.OpGet(entries[i].Record))
	}
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return s.sess.KV().Txn(call).Then(ops...).Commit()
	})
	if err != nil {
		return nil, err
	}
	for i, r := range resp.Responses {
		states[i].majority = true
		states[i].take(r.GetResponseRange().Kvs)
	}
	return s.reader.describe(ctx, entries, states)
}

func (l *listing) get(ctx context.Context) (*clientv3.GetResponse, error) {
	from, end := l.span.Range()
	for {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
			return l.store.sess.KV().Get(call, from, clientv3.WithRange(end), clientv3.WithLimit(l.page))
		})
		if !commit.TooLarge(err) || l.page == 1 {
			return resp, err
		}
		l.page /= 2
	}
}

func describe(e keyspace.Entry, st state) Record {
	r := st.rec
	out := Record{Ref: Ref(e.Ref), Revision: st.mod(), State: Unreadable, begun: begunIn(r)}
	if st.bad {
		return out
	}
	out.Scope, out.Op, out.Attempt, out.Token, out.Owner = r.Scope, r.Op, r.Number, r.Token, r.Owner
	out.Returns, out.Failure, out.Bytes, out.Omitted = r.Returns, r.Error, r.Size, r.Omitted
	out.Refuse, out.Resolved, out.Via, out.Note, out.Codec = r.Refuse, r.By, r.Via, r.Note, r.Codec
	for _, was := range r.Was {
		out.Earlier = append(out.Earlier, EarlierResolution{State: outcomes[was.State], By: was.By, At: record.Time(was.AtMS), Failure: was.Error})
	}
	out.Started, out.Ended = record.Time(r.StartMS), record.Time(r.EndMS)
	switch state, ended := outcomes[r.State]; {
	case ended:
		out.State = state
	case st.live:
		out.State = InProgress
	default:
		out.State = Unknown
	}
	if out.State != Done && out.State != Failed {
		out.Steps = record.StepNames(r.Body)
	}
	return out
}

// outcomes are the states of requests without an attempt in progress or lost, by those of their records.
var outcomes = map[string]State{record.AttemptDone: Done, record.AttemptFailed: Failed, record.AttemptReleased: Released}
