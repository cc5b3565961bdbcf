package limit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

var (
	// ErrNone: there is no limit to change and no request.
	ErrNone = errors.New("no limit is stored")
	// ErrUnreadable: the stored limit is not a record of this release.
	ErrUnreadable = errors.New("the limit in etcd cannot be read")
)

// Unreadable returns ErrUnreadable for a record, with its key and why.
func Unreadable(r mirror.LimitRecord) error { return fmt.Errorf("%w: %w", ErrUnreadable, r.Why) }

// Store is the stored limit of one queue, with the one that was seen last. It is safe for
// concurrent use.
type Store struct {
	KV   clientv3.KV
	Keys keyspace.Queue
	Base *Base       // nil if only the queue's own limit counts
	By   Author      // of what it stores
	See  func(int64) // is called with each revision that is met
	// Changed is called when another limit is seen than before, unless it is that of Base. It must not
	// block. It may be nil.
	Changed func(from, to int64)

	seen atomic.Pointer[seen]
}

// seen is a limit with the values of the records that it was read from.
type seen struct {
	Limit
	own, base string
	without   int64 // a revision at which the queue had no record of its own, or 0
}

// later reports whether what was read replaces what was seen last.
func (l *seen) later(last *seen) bool {
	switch {
	case last == nil:
		return true
	case l.Revs.Own == 0 && last.Revs.Own > 0: // it was deleted by hand, unless this is an older read
		return l.without > last.Revs.Own && l.Revs.Base >= last.Revs.Base
	case l.Revs.Own > 0 && l.Revs.Own <= last.without:
		return false
	}
	return l.Revs.after(last.Revs)
}

// Seen returns the limit that was seen last, or nil.
func (s *Store) Seen() *Limit {
	if seen := s.seen.Load(); seen != nil {
		return &seen.Limit
	}
	return nil
}

// Forget forgets it: etcd's history was taken back.
func (s *Store) Forget() { s.seen.Store(nil) }

// Fixed implements Setting.
func (s *Store) Fixed() int64 { return 0 }

// Counts returns the reads of the records with the number of the heavy requests, which are next to the
// queue's own one.
func (s *Store) Counts() []clientv3.Op {
	return append([]clientv3.Op{clientv3.OpGet(s.Keys.Limit, clientv3.WithRange(s.Keys.Light), clientv3.WithLimit(1))}, s.Reads()[1:]...)
}

// Counted returns what they have shown.
func (s *Store) Counted(read []*etcdserverpb.ResponseOp) (r Records, heavy int64) {
	// The limit comes first, then the heavy requests.
	r, heavy = s.Records(read, 0), read[0].GetResponseRange().Count // etcd counts beyond the limit of a read
	if r.Own != nil && string(r.Own.Key) == s.Keys.Limit {
		return r, heavy - 1
	}
	r.Own = nil
	return r, heavy
}

// Reads returns the reads of the limit's records, for a Txn, in the order of Records.
func (s *Store) Reads() []clientv3.Op {
	if s.Base == nil {
		return []clientv3.Op{clientv3.OpGet(s.Keys.Limit)}
	}
	return []clientv3.Op{clientv3.OpGet(s.Keys.Limit), s.Base.get()}
}

// Records returns what they have shown at a revision, 0 if that is set later.
func (s *Store) Records(read []*etcdserverpb.ResponseOp, at int64) (r Records) {
	r.Own, r.At = First(read[0]), at
	if s.Base != nil {
		r.Base = First(read[1])
	}
	return r
}

// Unchanged returns the conditions, for a Txn, that the records are those of the revisions.
func (s *Store) Unchanged(r Revs) []clientv3.Cmp {
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.Keys.Limit), "=", r.Own)}
	if s.Base != nil {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(s.Base.Key), "=", r.Base))
	}
	return cmps
}

// Read returns the stored limit. ok is false if there is none.
func (s *Store) Read(ctx context.Context) (l Limit, ok bool, err error) {
	if s.Base == nil {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) { return s.KV.Get(call, s.Keys.Limit) })
		if err != nil || len(resp.Kvs) == 0 {
			return Limit{}, false, err
		}
		return s.Learn(Records{Own: resp.Kvs[0], At: resp.Header.Revision})
	}
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return s.KV.Txn(call).Then(s.Reads()...).Commit()
	})
	if err != nil {
		return Limit{}, false, err
	}
	return s.Learn(s.Records(resp.Responses, resp.Header.Revision))
}

// Learn returns the limit of the records that were read, nil for one that does not exist, and
// remembers it. They are read with each request but seldom change, so they are decoded once per
// revision. ok is false if no limit is stored.
func (s *Store) Learn(read Records) (l Limit, ok bool, err error) {
	own, base := read.Own, read.Base
	revs, values := read.Revs(), [2]string{}
	if own != nil {
		values[0] = string(own.Value)
	}
	if base != nil {
		values[1] = string(base.Value)
		if s.Base.Met != nil {
			s.Base.Met(base)
		}
	}
	if seen := s.seen.Load(); seen != nil && seen.Revs == revs && seen.own == values[0] && seen.base == values[1] {
		return seen.Limit, true, nil
	}
	limits := mirror.Limits{Own: mirror.ReadLimitRecord(own), Base: mirror.ReadLimitRecord(base)}
	r := limits.InForce()
	switch {
	case r.Damaged:
		return Limit{}, false, Unreadable(r)
	case r.Rev == 0:
		return Limit{}, false, nil
	}
	l = Limit{N: r.Limit.Limit, Initial: r.Initial, Lowered: max(limits.Own.Previous, r.Previous) > 0, Rate: r.Rate, Revs: revs}
	now := &seen{Limit: l, own: values[0], base: values[1]}
	if own == nil {
		now.without = read.At
	}
	s.saw(now)
	return l, true, nil
}

// saw remembers a limit, unless a later one was seen.
func (s *Store) saw(l *seen) {
	s.See(max(l.Revs.Own, l.Revs.Base))
	for {
		last := s.seen.Load()
		if !l.later(last) {
			return
		}
		if last != nil {
			l.without = max(l.without, last.without)
		}
		if s.seen.CompareAndSwap(last, l) {
			if s.Changed != nil && last != nil && last.N != l.N && last.Revs.Own != l.Revs.Own {
				s.Changed(last.N, l.N)
			}
			return
		}
	}
}

// Init stores a limit of n if there is none, and returns the one that is stored then: the default,
// where there is one. If another limit was seen before, that one is stored: it was deleted by hand.
func (s *Store) Init(ctx context.Context, n int64, rate record.Rate) (Limit, error) {
	if s.Base != nil {
		if _, err := s.Base.Init(ctx, n, rate); err != nil {
			return Limit{}, err
		}
	}
	r := record.Limit{Limit: n, Rate: rate, Initial: true, Settled: true}
	if seen := s.Seen(); seen != nil {
		r.Limit, r.Rate, r.Initial = seen.N, seen.Rate.StoredAt(seen.Revs.Own), seen.Initial
	}
	for {
		if s.Base == nil {
			_, _, err := s.swap(ctx, Revs{}, sign(ctx, r, s.By), record.Limit{})
			if err != nil && !errors.Is(err, commit.ErrConflict) {
				return Limit{}, err
			}
		}
		if stored, ok, err := s.Read(ctx); ok || err != nil {
			return stored, err
		}
	}
}

// Author returns the author of a change that is made with ctx.
type Author func(ctx context.Context) string

// sign returns a record as one of a process's own.
func sign(ctx context.Context, r record.Limit, by Author) record.Limit {
	r.Nonce, r.By, r.AtMS = rand.Text(), by(ctx), time.Now().UnixMilli()
	return r
}

// isOf returns what a value shows of the change to a record, see commit.Swap: one that the first program
// stores, because there is none, replaces no change.
func isOf(r record.Limit) func([]byte) commit.Found { return replaces(r, record.Limit{}) }

// replaces is isOf in place of a record. That one, made exact by settle, replaces no change.
func replaces(r, was record.Limit) func([]byte) commit.Found {
	return func(b []byte) commit.Found {
		found, ok := record.DecodeLimit(b)
		switch {
		case ok && found.Nonce == r.Nonce:
			return commit.Mine
		case ok && (found.Initial || was.AtMS != 0 && found.AtMS == was.AtMS && found.By == was.By):
			return commit.NotMade
		}
		return commit.Another
	}
}

// swap stores the queue's own record if the records are those of the revisions: see commit.Swap.
func (s *Store) swap(ctx context.Context, at Revs, r, was record.Limit, also ...clientv3.Op) (int64, []*etcdserverpb.ResponseOp, error) {
	return commit.SwapIf(ctx, s.KV, s.Keys.Limit, at.Own, s.Unchanged(at)[1:], r.Encode(), replaces(r, was), also...)
}

// Set changes the queue's own limit by compare-and-set. If it becomes Inherit, the queue has the default
// again.
//
// After the limit was lowered it no longer shows which requests had been admitted before. So
// the record has the token up to which requests were. What was read before the change cannot
// show that exactly, since a waiter may have been admitted in between; the queue is therefore
// read once more in the Txn of the change, and the exact token is added to the record right
// after it. Until then, and if this process dies in between, all requests that may have been
// admitted count as holders. The next change tries to settle that first, and hands it on if it
// cannot.
//
// A limit is stored for a new name only if create is set; otherwise Set returns ErrNone. A name
// of which a limit was seen, or that has live requests, is not new. That is decided at the
// revision of the read: if a limit was stored then, the change is made only if it still is.
//
// A rate that is stored already is not stored again: requests would weigh anew (record.Rate).
func (s *Store) Set(ctx context.Context, to Change, create bool, read func(context.Context) (mirror.View, error)) error {
	tried := int64(0)
	for {
		v, err := read(ctx)
		if err != nil {
			return err
		}
		own, at := v.Limits.Own, RevsOf(v.Limits)
		n, rate := to(v)
		switch {
		case v.Damaged: // replaced by deleting it by hand, not by chance
			return Unreadable(v.Limits.InForce())
		case !create && !v.Known && len(v.Holders) == 0 && s.seen.Load() == nil:
			return ErrNone
		case n == Inherit && (own.Rev == 0 || own.Inherit):
			return nil
		case own.Unsettled() && own.Rev != tried:
			tried = own.Rev
			s.settle(ctx, own.Limit, at, nil)
			continue
		case own.Rev > 0 && rate != record.Rate{} && rate == own.Rate && n == own.Limit.Limit:
			return nil
		}
		r, lowers := change(v, n)
		r.Rate = rate
		r = sign(ctx, r, s.By)
		rev, queue, err := s.swap(ctx, at, r, own.Limit, clientv3.OpGet(s.Keys.Requests, clientv3.WithPrefix()))
		if errors.Is(err, commit.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		was := v.Limits.InForce()
		replaced(ctx, was.Limit, was.Rev != 0)
		if rev == 0 { // another change came just after it
			return nil
		}
		changed := Revs{rev, at.Base}
		s.saw(&seen{Limit: Limit{N: r.Limit, Lowered: r.Previous > 0, Rate: rate, Revs: changed}, own: r.Encode()})
		if lowers && v.Limits.Previous() == 0 {
			var before *mirror.View
			if queue != nil { // nil if it was found applied after a lost answer
				kvs := queue[0].GetResponseRange().Kvs
				if own.Rev > 0 {
					kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(s.Keys.Limit), Value: []byte(own.Encode()), ModRevision: own.Rev})
				}
				v := mirror.Read(s.Keys, 0, v.Limits.Base, kvs, rev)
				before = &v
			}
			s.settle(ctx, r, changed, before)
		}
		return nil
	}
}

// settle makes the record of a limit that was lowered at a revision exact, from the queue and
// limit just before that; they are read if before is nil. If it fails, the record errs on the
// side of too many holders.
func (s *Store) settle(ctx context.Context, r record.Limit, at Revs, before *mirror.View) {
	if before == nil {
		call, cancel := commit.Call(ctx)
		defer cancel()
		kvs, base, err := s.past(call, at.Own-1)
		if err != nil { // compacted, for instance
			return
		}
		v := mirror.Read(s.Keys, 0, base, kvs, at.Own)
		before = &v
	}
	if exact, ok := settled(r, at.Own, *before); ok {
		exact.Nonce = rand.Text()
		_, _, _ = commit.Swap(ctx, s.KV, s.Keys.Limit, at.Own, exact.Encode(), isOf(exact))
	}
}

// past returns the queue and the default as of an earlier revision.
func (s *Store) past(ctx context.Context, revision int64) (kvs []*mvccpb.KeyValue, base mirror.LimitRecord, err error) {
	resp, err := s.KV.Get(ctx, s.Keys.Range, clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return nil, base, err
	}
	if s.Base == nil {
		return resp.Kvs, base, nil
	}
	was, err := s.KV.Get(ctx, s.Base.Key, clientv3.WithRev(revision))
	if err == nil && len(was.Kvs) > 0 {
		base = mirror.ReadLimitRecord(was.Kvs[0])
	}
	return resp.Kvs, base, err
}
