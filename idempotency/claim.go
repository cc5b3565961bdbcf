package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/record"
)

// epoch is what a claim depends on: a ground.
type epoch interface {
	life.Trust
	add(*Attempt)
	remove(*Attempt)
	Why() (cause, reason error)
	Outlived() bool
	Fence() *commit.Fence
}

// claim is what an attempt has from its beginning to its end. It does not change.
type claim struct {
	store   *Store
	key     Key
	entry   keyspace.Entry
	set     *settings
	child   []byte // the payload's hash, for child keys
	flight  *flight
	epoch   epoch
	entered engine.Entered // Close waits for it
	work    *pooled
	begun   *record.Attempt // the record as the claim writes it
}

// leave ends the wait of Close.
func (c *claim) leave() { c.entered.Leave() }

// claim begins an attempt if the key is still as it was read. It returns nil and no error if it is
// not, or if the session was lost meanwhile.
func (c *call) claim(ctx context.Context, f *flight, st state, at moment) (*Attempt, error) {
	s := c.store
	ep, err := engine.LiveAt(ctx, s.sess, at)
	if err != nil {
		return nil, c.because(ctx, err)
	}
	a := &Attempt{}
	cl := &a.claim
	if !ep.EnterAs(ctx, &cl.entered) { // Close waits from here on, until the attempt is settled
		return nil, nil
	}
	if cl.work, err = s.work.takeAt(ctx, 1, at); err != nil {
		cl.leave()
		return nil, nearQuota(c.because(ctx, err))
	}
	s.retention.of(c.set.Retain).warm(at) // for the outcome
	cl.store, cl.key, cl.entry, cl.set, cl.child, cl.flight = s, c.key, c.entry, c.set, c.print.child, f
	cl.epoch, cl.begun = s.work.under(ep, cl.work), c.next(st)
	cl.begun.Lease, cl.begun.Session = int64(ep.Lease()), ep.Of()
	// The answer is waited for while the session closes, but not after.
	sent := either.Of(c.outer, s.sess.Context(), ErrClosed)
	defer sent.Release()
	created, err := cl.send(sent, st)
	var pending *commit.PendingError
	switch {
	case errors.As(err, &pending):
		cl.discard(pending, st)
		return nil, nearQuota(c.because(sent, err))
	case errors.Is(err, commit.ErrGone):
		// An earlier answer may have been lost: then the record exists, and its session does not.
		if ep.Valid() { // so it was probably not the session's lease
			s.work.forget(cl.work)
		}
		return nil, cl.withdraw(sent, st)
	case err == nil && created.Token != 0 && !cl.epoch.Valid():
		return nil, cl.withdraw(sent, st)
	case err != nil || created.Token == 0:
		cl.leave()
		s.work.give(cl.work, false)
		if err == nil || errors.Is(err, commit.ErrOccupied) {
			return nil, nil
		}
		return nil, nearQuota(c.because(sent, err))
	}
	s.reader.saw(created.Token, st.sent)
	s.count.add(&s.count.Begun, 1)
	if st.lost() {
		s.count.add(&s.count.TakenOver, 1) // effects of the lost one outside etcd may happen a second time
		s.log.Warn("an attempt was lost: the request runs again", c.fields(st, cl.begun.Number)...)
	}
	a.start(c.outer, created.Token)
	return a, nil
}

// lostWithSession returns the cause of an attempt that ends with its session.
func (c *claim) lostWithSession() error {
	cause, reason := c.epoch.Why()
	text := fmt.Sprintf("attempt at %v: %v", c.key, cause)
	if cause == ErrLost { //nolint:errorlint // its text is of a permit
		text = fmt.Sprintf("attempt at %v is lost", c.key)
	}
	if reason != nil {
		text += ": " + reason.Error()
	}
	return &lostError{text, cause}
}

// fenced returns the cause of an attempt that ends when etcd refuses a write of it.
func (c *claim) fenced() error { return fmt.Errorf("attempt at %v: %w", c.key, ErrFenced) }

func (c *claim) late() error {
	return fmt.Errorf("run %v: %w: MaxExecution of %v has passed", c.key, ErrTooLong, c.set.MaxExecution)
}

// send writes the record. It names the session's lease, so the attempt ends with this process, while the record, which
// is on a lease of its own, stays and shows that there was an attempt.
func (c *claim) send(ctx context.Context, before state) (commit.Result, error) {
	value := c.begun.Bytes()
	c.store.space.writes(1, len(value))
	return c.epoch.Fence().Create(ctx, commit.Creation{
		Key: c.entry.Record, Bytes: value, Mod: before.mod(), Lease: c.work.id, If: c.store.reader.ended(before),
		Mine:     func(v []byte) bool { return bytes.Equal(v, value) },
		Together: c.store.together(c.entry),
	})
}

// discard takes back, in the background, a claim that may have been written or may still be: its function does not run.
// While etcd is out of space the copies that may still be written cannot be shut out; what is written is removed all the
// same.
func (c *claim) discard(pending *commit.PendingError, before state) {
	s, w := c.store, c.withdrawal(before)
	if !s.withdrawals.run(c.begun.Encode(), func(ctx context.Context) {
		defer c.leave()
		err := w.repeat(ctx, func(ctx context.Context) error {
			settled := pending.Settle(ctx)
			return cmp.Or(w.try(ctx), settled)
		})
		s.work.give(c.work, err != nil)
	}) {
		pending.Abandon()
		s.work.give(c.work, true)
		c.leave()
	}
}

// nearQuota joins ErrNearQuota if etcd has refused a write for lack of space.
func nearQuota(err error) error {
	if errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		return join.Errors(ErrNearQuota, err)
	}
	return err
}

// withdraw removes what is left of a claim whose function was not called, so that no call takes it for
// a lost attempt. If ctx ends before, the removal continues in the background, and withdraw returns
// the error.
func (c *claim) withdraw(ctx context.Context, before state) error {
	s, w := c.store, c.withdrawal(before)
	err := w.try(ctx)
	if err == nil || !s.withdrawals.run(c.begun.Encode(), func(ctx context.Context) {
		defer c.leave()
		s.work.give(c.work, w.repeat(ctx, w.try) != nil)
	}) {
		s.work.give(c.work, err != nil)
		c.leave()
	}
	if err != nil {
		err = nearQuota(because(ctx, err))
	}
	return err
}

func (c *claim) withdrawal(before state) withdrawal {
	return withdrawal{reader: c.store.reader, entry: c.entry, text: c.begun.Encode(), before: before}
}
