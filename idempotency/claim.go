package idempotency

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// claim begins an attempt, if the key still stands as it was read. It returns nil and no
// error if it does not, or if the session was lost on the way.
//
// One Txn puts the record, and the claim: that is on the session's lease, so it goes when
// this process does, while the record stays and tells that there was an attempt.
func (c *call) claim(ctx context.Context, f *flight, st state) (*Attempt, error) {
	s := c.store
	ep, err := s.sess.Live(ctx)
	if err != nil {
		return nil, c.because(ctx, err)
	}
	leave, ok := ep.Enter() // Close waits, from here on until the attempt is settled
	if !ok {
		return nil, nil
	}
	work, err := s.work.take(ctx, 1)
	if err != nil {
		leave()
		return nil, nearQuota(c.because(ctx, err))
	}
	s.retain(c.set.retain).warm() // for the outcome
	rec := c.next(st)
	rec.Lease = int64(ep.Lease())
	nonce, value := rec.Nonce, rec.Encode()
	unchanged := clientv3.Compare(clientv3.ModRevision(c.entry.Record), "=", st.mod())
	// What was sent is waited for while the session closes, but not after.
	sent, cancel := s.whileOpen(c.outer)
	defer cancel()
	s.space.writes(2, 2*len(value))
	created, err := ep.Fence().Create(sent, commit.Creation{
		Key:   c.entry.Claim(),
		Value: record.Claim{Nonce: nonce, Lease: rec.Lease, Holder: rec.Holder}.Encode(),
		If:    []clientv3.Cmp{unchanged},
		Also:  []clientv3.Op{clientv3.OpPut(c.entry.Record, value, clientv3.WithLease(work.id))},
		Mine: func(v []byte) bool {
			r, ok := record.DecodeClaim(v)
			return ok && r.Nonce == nonce && r.Lease == rec.Lease
		},
		Together: s.together(c.entry),
	})
	var pending *commit.PendingError
	switch {
	case errors.As(err, &pending):
		// Whenever it arrives, nothing is run for it. The record outlives the session's lease, so
		// it is taken back also where the claim has gone with that.
		var undo []string
		if st.kv == nil {
			undo = append(undo, c.entry.Record)
		}
		if !s.takeBack(value, func() {
			defer leave()
			err := pending.Discard(s.sess.Context(), undo...)
			if err == nil {
				err = s.undoInTheEnd(c.entry, value, st)
			}
			s.work.give(work, err != nil)
		}) {
			pending.Abandon()
			s.work.give(work, true)
			leave()
		}
		return nil, nearQuota(c.because(sent, err))
	case errors.Is(err, commit.ErrGone):
		// An answer may have been lost before: then the record stands, and not the claim.
		if ep.Valid() { // so it was hardly the session's lease
			s.work.forget(work)
		}
		err := c.withdraw(sent, work, value, st)
		leave()
		return nil, err
	case errors.Is(err, commit.ErrOccupied), err == nil && created.Token == 0, err != nil:
		leave()
		s.work.give(work, false)
		if errors.Is(err, commit.ErrOccupied) {
			err = nil
		}
		if err != nil {
			err = nearQuota(c.because(sent, err))
		}
		return nil, err
	}
	a := &Attempt{store: s, key: c.key, entry: c.entry, epoch: ep, set: c.set, flight: f, leave: leave, work: work,
		number: rec.Number, token: created.Token, child: c.print.child, mod: created.Token, rec: rec, writing: make(chan struct{}, 1)}
	if !ep.Valid() {
		err := c.withdraw(sent, work, value, st)
		leave()
		return nil, err
	}
	s.saw(created.Token, st.sent)
	s.count.begun.Add(1)
	if st.lost() {
		c.tookOver(st, rec.Number)
	}
	a.start(c.outer)
	return a, nil
}

// whileOpen derives a ctx that ends, with ErrClosed, when the session has waited for those who
// hold something.
func (s *Store) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.sess.Context(), func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// nearQuota joins ErrNearQuota with etcd's own refusal for lack of space.
func nearQuota(err error) error {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		return errors.Join(ErrNearQuota, err)
	}
	return err
}

// withdraw takes back what a claim has left whose attempt was not started: nothing was run, and it
// must not look as if it had been. If it cannot do so before ctx ends, it goes on in the
// background, and returns the error.
func (c *call) withdraw(ctx context.Context, work *pooled, value string, before state) error {
	s := c.store
	err := s.undo(ctx, c.entry, value, before)
	if err == nil || !s.takeBack(value, func() { s.work.give(work, s.undoInTheEnd(c.entry, value, before) != nil) }) {
		s.work.give(work, err != nil)
	}
	if err != nil {
		err = nearQuota(because(ctx, err))
	}
	return err
}

// takeBack has the record of a claim taken back in the background, by undo. It returns false, and
// does nothing, when the session has ended.
func (s *Store) takeBack(value string, undo func()) bool {
	mark := func(on bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.unstarted, value); on {
			s.unstarted[value] = true
		}
	}
	mark(true)
	ok := s.sess.Background(func() { defer mark(false); undo() })
	if !ok {
		mark(false)
	}
	return ok
}

// takesBack reports whether the record that stands at a key is of a claim of this process that is
// being taken back: its function was never called.
func (s *Store) takesBack(st state) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unstarted[string(st.kv.Value)]
}

// undoInTheEnd is undo without a caller that waits for it: it continues even while etcd refuses, for
// want of space perhaps, since that may be mended. It returns an error only if the session has ended.
func (s *Store) undoInTheEnd(e keyspace.Entry, value string, before state) error {
	ctx, pause := s.sess.Context(), commit.Backoff{Most: 5 * time.Second}
	for {
		err := s.undo(ctx, e, value, before)
		if err == nil {
			return nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// undo puts back what stood at a key, if the record of that claim stands there, which no other one
// has written: its nonce is the attempt's own. No copy of the claim may be under way any more.
func (s *Store) undo(ctx context.Context, e keyspace.Entry, value string, before state) error {
	st, err := s.read(ctx, e, true)
	if err != nil || st.kv == nil || string(st.kv.Value) != value {
		return err
	}
	nothing := []clientv3.Op{clientv3.OpDelete(e.Record), clientv3.OpDelete(e.Claim())}
	am := commit.Amendment{Key: e.Record, Mod: st.kv.ModRevision, Then: nothing, Mine: func(kv *mvccpb.KeyValue) bool {
		return kv == nil || before.kv != nil && string(kv.Value) == string(before.kv.Value)
	}}
	if before.kv != nil {
		am.Then = []clientv3.Op{clientv3.OpPut(e.Record, string(before.kv.Value), clientv3.WithLease(clientv3.LeaseID(before.kv.Lease))), nothing[1]}
		res, err := commit.Amend(ctx, s.client, am)
		if err != nil || res.Outcome != commit.LeaseGone {
			return err
		}
		am.Then = nothing // it would have expired
	}
	_, err = commit.Amend(ctx, s.client, am)
	return err
}
