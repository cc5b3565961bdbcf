package limit

import (
	"context"
	"crypto/rand"
	"errors"
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
	ErrUnreadable = errors.New("the limit in etcd cannot be read: it is damaged, or of a later release")
)

// Store is the stored limit of one queue, with the one that was seen last. It is safe for
// concurrent use.
type Store struct {
	KV   clientv3.KV
	Keys keyspace.Queue
	By   string      // the holder that changes it
	See  func(int64) // is called with each revision that is met

	seen atomic.Pointer[Limit]
}

// Seen returns the limit that was seen last, or nil.
func (s *Store) Seen() *Limit { return s.seen.Load() }

// Forget forgets it: etcd's history was taken back.
func (s *Store) Forget() { s.seen.Store(nil) }

// Read returns the stored limit. ok is false if there is none.
func (s *Store) Read(ctx context.Context) (l Limit, ok bool, err error) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) { return s.KV.Get(call, s.Keys.Limit) })
	if err != nil || len(resp.Kvs) == 0 {
		return Limit{}, false, err
	}
	l, err = s.Learn(resp.Kvs[0])
	return l, err == nil, err
}

// Learn returns the limit of a key that was read, and remembers it. It is read with each
// request but seldom changes, so it is decoded once per revision.
func (s *Store) Learn(kv *mvccpb.KeyValue) (Limit, error) {
	if seen := s.seen.Load(); seen != nil && seen.Revision == kv.ModRevision && seen.value == string(kv.Value) {
		return *seen, nil
	}
	r, ok := mirror.ReadLimit(kv)
	if !ok {
		return Limit{}, ErrUnreadable
	}
	return s.saw(r, string(kv.Value), kv.ModRevision), nil
}

// saw remembers the limit that was stored at a revision.
func (s *Store) saw(r record.Limit, value string, revision int64) Limit {
	saw := Limit{N: r.Limit, Initial: r.Initial, Lowered: r.Previous > 0, Revision: revision, value: value}
	s.See(revision)
	for {
		seen := s.seen.Load()
		if seen != nil && seen.Revision >= revision || s.seen.CompareAndSwap(seen, &saw) {
			return saw
		}
	}
}

// Init stores a limit of n if there is none, and returns the one that is stored then. If
// another limit was seen before, that one is stored: it was deleted by hand.
func (s *Store) Init(ctx context.Context, n int64) (Limit, error) {
	r := record.Limit{Limit: n, Initial: true, Settled: true}
	if seen := s.seen.Load(); seen != nil {
		r.Limit, r.Initial = seen.N, seen.Initial
	}
	for {
		_, _, err := s.swap(ctx, 0, s.sign(r))
		if err != nil && !errors.Is(err, commit.ErrConflict) {
			return Limit{}, err
		}
		if stored, ok, err := s.Read(ctx); ok || err != nil {
			return stored, err
		}
	}
}

// sign returns a record as one of this process's own.
func (s *Store) sign(r record.Limit) record.Limit {
	r.Nonce, r.By, r.AtMS = rand.Text(), s.By, time.Now().UnixMilli()
	return r
}

// swap stores a record in place of that of a revision: see commit.Swap.
func (s *Store) swap(ctx context.Context, revision int64, r record.Limit, also ...clientv3.Op) (int64, []*etcdserverpb.ResponseOp, error) {
	return commit.Swap(ctx, s.KV, s.Keys.Limit, revision, r.Encode(), func(b []byte) bool {
		found, ok := record.DecodeLimit(b)
		return ok && found.Nonce == r.Nonce
	}, also...)
}

// Set changes the limit by compare-and-set.
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
func (s *Store) Set(ctx context.Context, n int64, create bool, read func(context.Context) (mirror.View, error)) error {
	tried := int64(0)
	for {
		v, err := read(ctx)
		if err != nil {
			return err
		}
		switch {
		case v.Damaged: // replaced by deleting it by hand, not by chance
			return ErrUnreadable
		case !create && !v.Known && len(v.Holders) == 0 && s.seen.Load() == nil:
			return ErrNone
		case v.Record.Unsettled() && v.LimitRev != tried:
			tried = v.LimitRev
			s.settle(ctx, v.Record, v.LimitRev, nil)
			continue
		}
		r, lowers := change(v, n)
		r = s.sign(r)
		rev, queue, err := s.swap(ctx, v.LimitRev, r, clientv3.OpGet(s.Keys.Requests, clientv3.WithPrefix()))
		if errors.Is(err, commit.ErrConflict) {
			continue
		}
		if err != nil || rev == 0 { // 0: another change came just after it
			return err
		}
		s.saw(r, r.Encode(), rev)
		if lowers && !v.Record.Unsettled() {
			var before []*mvccpb.KeyValue
			if queue != nil { // nil if it was found applied after a lost answer
				old := &mvccpb.KeyValue{Key: []byte(s.Keys.Limit), Value: []byte(v.Record.Encode()), ModRevision: v.LimitRev}
				before = append(queue[0].GetResponseRange().Kvs, old)
			}
			s.settle(ctx, r, rev, before)
		}
		return nil
	}
}

// settle makes the record of a limit that was lowered at a revision exact, from the queue and
// limit just before that; they are read if before is nil. If it fails, the record errs on the
// side of too many holders.
func (s *Store) settle(ctx context.Context, r record.Limit, rev int64, before []*mvccpb.KeyValue) {
	if before == nil {
		call, cancel := commit.Call(ctx)
		defer cancel()
		resp, err := s.KV.Get(call, s.Keys.Range, clientv3.WithPrefix(), clientv3.WithRev(rev-1))
		if err != nil { // compacted, for instance
			return
		}
		before = resp.Kvs
	}
	if exact, ok := settled(r, mirror.Read(s.Keys, 0, before, rev)); ok {
		exact.Nonce = rand.Text()
		_, _, _ = s.swap(ctx, rev, exact)
	}
}
