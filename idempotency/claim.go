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
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/record"
)

// epoch is what a claim depends on: an *engine.Epoch.
type epoch interface {
	life.Trust
	Context() context.Context
	Why() (cause, reason error)
	Fence() *commit.Fence
}

// claim is a place at a key: what an attempt has from its beginning to its end. It does not change.
type claim struct {
	store  *Store
	key    Key
	entry  keyspace.Entry
	set    settings
	child  []byte // the payload's hash, for child keys
	flight *flight
	epoch  epoch
	leave  func() // has Close no longer wait for it
	work   *pooled
	begun  record.Attempt // the record as the claim writes it
	value  string         // of begun
}

// claim begins an attempt if the key is still as it was read. It returns nil and no error if it is
// not, or if the session was lost meanwhile.
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
	cl := &claim{store: s, key: c.key, entry: c.entry, set: c.set, child: c.print.child, flight: f, epoch: ep, leave: leave, work: work, begun: rec, value: rec.Encode()}
	// A request that was sent is waited for while the session closes, but not after.
	sent, cancel := s.whileOpen(c.outer)
	defer cancel()
	created, err := cl.send(sent, st)
	var pending *commit.PendingError
	switch {
	case errors.As(err, &pending):
		cl.discard(pending, st)
		return nil, nearQuota(c.because(sent, err))
	case errors.Is(err, commit.ErrGone):
		// An answer may have been lost before: then the record is there, and not the claim.
		if ep.Valid() { // so it was hardly the session's lease
			s.work.forget(work)
		}
		return nil, cl.withdraw(sent, st)
	case err == nil && created.Token != 0 && !ep.Valid():
		return nil, cl.withdraw(sent, st)
	case err != nil || created.Token == 0:
		leave()
		s.work.give(work, false)
		if err == nil || errors.Is(err, commit.ErrOccupied) {
			return nil, nil
		}
		return nil, nearQuota(c.because(sent, err))
	}
	s.saw(created.Token, st.sent)
	s.count.begun.Add(1)
	if st.lost() {
		c.tookOver(st, rec.Number)
	}
	return cl.start(c.outer, created.Token), nil
}

// send writes the record and the claim in one Txn. The claim is on the session's lease, so it ends
// with this process, while the record stays and shows that there was an attempt.
func (c *claim) send(ctx context.Context, before state) (commit.Result, error) {
	c.store.space.writes(2, 2*len(c.value))
	return c.epoch.Fence().Create(ctx, commit.Creation{
		Key:   c.entry.Claim(),
		Value: record.Claim{Nonce: c.begun.Nonce, Lease: c.begun.Lease, Holder: c.begun.Holder}.Encode(),
		If:    []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.entry.Record), "=", before.mod())},
		Also:  []clientv3.Op{clientv3.OpPut(c.entry.Record, c.value, clientv3.WithLease(c.work.id))},
		Mine: func(v []byte) bool {
			r, ok := record.DecodeClaim(v)
			return ok && r.Nonce == c.begun.Nonce && r.Lease == c.begun.Lease
		},
		Together: c.store.together(c.entry),
	})
}

// discard takes back, in the background, a claim whose outcome is not known: whenever it arrives,
// nothing runs for it. The record outlives the session's lease, so it is taken back also where the
// claim has gone with that.
func (c *claim) discard(pending *commit.PendingError, before state) {
	s := c.store
	var undo []string
	if before.kv == nil {
		undo = append(undo, c.entry.Record)
	}
	if !s.takeBack(c.value, func() {
		defer c.leave()
		err := pending.Discard(s.sess.Context(), undo...)
		if err == nil {
			err = s.undoInTheEnd(c.entry, c.value, before)
		}
		s.work.give(c.work, err != nil)
	}) {
		pending.Abandon()
		s.work.give(c.work, true)
		c.leave()
	}
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
// must not look as if it had been. If ctx ends before that is done, it continues in the background,
// and withdraw returns the error.
func (c *claim) withdraw(ctx context.Context, before state) error {
	defer c.leave()
	s := c.store
	err := s.undo(ctx, c.entry, c.value, before)
	if err == nil || !s.takeBack(c.value, func() { s.work.give(c.work, s.undoInTheEnd(c.entry, c.value, before) != nil) }) {
		s.work.give(c.work, err != nil)
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
