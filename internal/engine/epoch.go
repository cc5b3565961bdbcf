package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Epoch is the life of a session on one lease. It ends when the lease is lost or
// the session is closed, and with it all its permits.
type Epoch struct {
	sess  *Session
	lease *lease.Lease
	fence *commit.Fence
	keys  keyspace.Session

	history *mirror.History // in which the lease was taken

	ctx     context.Context // ends with the epoch
	cancel  context.CancelCauseFunc
	accept  context.Context // ends when no new request is taken: before ctx, on Close
	working context.Context // ends when no further part of work is taken: between these
	blind   *time.Timer     // runs while the own range cannot be read; only its follower uses it

	erasures erasures // of notices

	*roll
	*slots
}

// accepting returns a context that ends with an epoch's or, with ErrClosed as its cause, with the
// session's. Nothing else ends it: it has no cause but these two, however they meet.
func accepting(epoch, session context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(epoch)
	stop := context.AfterFunc(session, func() { cancel(ErrClosed) })
	context.AfterFunc(epoch, func() { stop() })
	return ctx
}

// end ends the epoch and all its permits. The first cause counts. Hooks are
// called when all contexts have ended, in a goroutine of their own, since they may take their time.
func (e *Epoch) end(cause error, reason error) {
	reason = e.sess.Explain(reason)
	holders, held, helpers, first := e.roll.end(cause, reason)
	if !first {
		return
	}
	var reports []func()
	for _, h := range holders {
		if report := h.Lose(cause, reason); report != nil {
			reports = append(reports, report)
		}
	}
	e.cancel(ErrEpoch)
	e.sess.work.end(held, helpers)
	if len(reports) > 0 {
		e.sess.Report(func() { hook.Each(reports, func(report func()) { report() }) })
	}
}

// Lease returns the ID of the epoch's lease.
func (e *Epoch) Lease() clientv3.LeaseID { return clientv3.LeaseID(e.lease.ID()) }

// Of returns the ID of the epoch's session, the same on all its leases.
func (e *Epoch) Of() string { return e.sess.id }

// Fence returns the fence of what the session creates on the lease.
func (e *Epoch) Fence() *commit.Fence { return e.fence }

// Context returns a context that ends with the epoch.
func (e *Epoch) Context() context.Context { return e.ctx }

// Accepting returns a context that ends when no new request is taken: with the epoch, with
// ErrEpoch as its cause, or before it when Close begins, with ErrClosed.
func (e *Epoch) Accepting() context.Context { return e.accept }

// Accepts returns a context that ends when the epoch takes no further call with ctx: with the epoch, with ErrEpoch as its cause,
// or with that of the session's Accepts, with ErrClosed.
func (e *Epoch) Accepts(ctx context.Context) context.Context {
	if relationOf(ctx, e.sess) == fresh {
		return e.accept
	}
	return e.working
}

// Deadline returns until when the lease may be trusted unless it is renewed.
func (e *Epoch) Deadline() time.Time { return e.lease.Deadline() }

// Valid reports whether the lease may be trusted now. If not, the epoch is ended,
// maybe at this moment by another goroutine.
func (e *Epoch) Valid() bool { return e.ifValid(e.lease.Valid()) }

// ValidAt is Valid by a reading of the clocks that the caller has made just now.
func (e *Epoch) ValidAt(at lease.Moment) bool { return e.ifValid(e.lease.ValidAt(at)) }

func (e *Epoch) ifValid(valid bool) bool {
	if !valid {
		e.end(ErrLost, e.lease.Cause())
	}
	return valid
}

// Trusted is Valid for a caller that must not end holders: an epoch that has ended by this is ended
// for its holders by another goroutine.
func (e *Epoch) Trusted() bool { return e.lease.Valid() }

// Gone ends an epoch of which a Txn has shown that its presence key is gone.
func (e *Epoch) Gone() {
	e.lease.Lose(errPresence)
	e.Valid()
}

// Vanished reports whether the presence key is gone from etcd, which ends the epoch: one read. It is false
// if etcd does not answer before ctx ends.
func (e *Epoch) Vanished(ctx context.Context) bool {
	kvs, err := e.sess.Get(ctx, e.keys.Alive())
	if err != nil || len(kvs) == 1 && kvs[0].CreateRevision == e.fence.Born() {
		return false
	}
	e.Gone()
	return true
}

// lateAnswer is how long an answer of etcd's may take that is on its way when the lease ends.
const lateAnswer = time.Second

// Answers derives a ctx for the Txn that ends a request. It ends with the epoch as well; but if etcd itself
// has ended the lease, only lateAnswer later or when Close has waited for the holders. The notice of that end can
// overtake the answer to the Txn, which says whether the lease or the Txn has removed the request.
func (e *Epoch) Answers(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, func() {
		defer cancel()
		if cause := e.lease.Cause(); !errors.Is(cause, errPresence) && !errors.Is(cause, lease.ErrGone) {
			return
		}
		t := time.NewTimer(lateAnswer)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-e.sess.ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel() }
}

// Refuses returns ErrEpoch or ErrClosed if the epoch takes no further call with the caller's ctx, unless the
// caller's ctx has ended as well. It does not look at the cause of a ctx derived from both:
// the caller's may have ended with one that another session has given it.
func (e *Epoch) Refuses(caller context.Context) error {
	if e.accept.Err() == nil || caller.Err() != nil {
		return nil
	}
	if accepts := e.Accepts(caller); accepts.Err() != nil {
		return context.Cause(accepts)
	}
	return nil
}

// WhyEnded returns why the epoch has ended, for what it has left without an outcome: as an
// error that is no loss of a permit.
func (e *Epoch) WhyEnded() error {
	cause, reason := e.Why()
	if errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	return reason
}

// Hold registers the holder of a ticket and returns what others have left for it. It
// registers none if that is a notice: the request was ended. It returns ErrEpoch if the epoch
// has ended, and ErrClosed if the session takes no further call with ctx.
func (e *Epoch) Hold(ctx context.Context, t *Ticket, h Holder) (Mail, error) {
	if !e.Valid() {
		return Mail{}, ErrEpoch
	}
	return e.roll.add(t, h, relationOf(ctx, e.sess))
}

// Drop forgets the holder of a ticket, which has ended by itself.
func (e *Epoch) Drop(t *Ticket) {
	if known, helpers := e.roll.drop(t); known {
		e.sess.work.end(1, helpers)
	}
}

// Enter counts one more holder that Close waits for, until leave is called or the epoch ends.
// It is a run of a job with that name. ok is false, and nothing is counted, if the epoch has ended or the session takes no
// further call with ctx.
func (e *Epoch) Enter(ctx context.Context, job string) (leave func(), ok bool) {
	h := &Entered{epoch: e}
	if !e.Valid() || !e.roll.enter(h, job, relationOf(ctx, e.sess)) {
		return nil, false
	}
	return h.Leave, true
}

// Entered is a holder that Close waits for, as a part of something else.
type Entered struct {
	epoch *Epoch
	left  atomic.Bool
}

// EnterAs is Enter for another holder, of an epoch of which the caller has found just now that it is valid.
func (e *Epoch) EnterAs(ctx context.Context, h *Entered) bool {
	h.epoch = e
	return e.roll.enter(h, "", relationOf(ctx, e.sess))
}

// Leave ends the wait of Close. It may be called more than once.
func (h *Entered) Leave() {
	if !h.left.Swap(true) && h.epoch.roll.leave(h) {
		h.epoch.sess.work.end(1, 0)
	}
}

// Writes records a ticket before its request is written.
func (e *Epoch) Writes(t *Ticket) {
	e.roll.creates(t)
	e.slots.name(t)
}

// Free forgets a ticket whose key is certainly gone, and frees its slot. It may be called
// more than once. A notice that comes afterwards is not kept.
func (e *Epoch) Free(t *Ticket) {
	e.roll.forget(t)
	e.slots.free(t)
}

// Waste forgets a ticket whose key is taken by a foreign one.
func (e *Epoch) Waste(t *Ticket) {
	e.roll.forget(t)
	e.slots.waste(t)
}

// Ended reports whether the request with that key on that lease is one of this session's own
// that has ended: its lease is lost, or its key is being deleted.
func (e *Epoch) Ended(lease int64, key string) bool {
	if lease == e.lease.ID() {
		return e.slots.deletesKey(key)
	}
	e.sess.mu.Lock()
	defer e.sess.mu.Unlock()
	_, past := e.sess.past[lease]
	return past
}

// Reset implements mirror.Handler for the session's own range.
func (e *Epoch) Reset(kvs []*mvccpb.KeyValue, revision int64) {
	if revision < e.fence.Born() {
		return // another history: Rewind loses the lease
	}
	e.sees()
	alive := false
	for _, kv := range kvs {
		if string(kv.Key) == e.keys.Alive() {
			alive = kv.CreateRevision == e.fence.Born() && kv.Lease == e.lease.ID()
		} else {
			e.notice(kv)
		}
	}
	if !alive {
		e.lease.Lose(errPresence)
	}
}

// Apply implements mirror.Handler for the session's own range.
func (e *Epoch) Apply(events []*clientv3.Event, _ int64) {
	for _, ev := range events {
		switch {
		case string(ev.Kv.Key) != e.keys.Alive():
			if ev.Type != clientv3.EventTypeDelete {
				e.notice(ev.Kv)
			}
		case ev.Type == clientv3.EventTypeDelete || ev.Kv.Lease != e.lease.ID():
			// On another lease, or on none, its deletion would not show the end
			// of this one.
			e.lease.Lose(errPresence)
		}
	}
}

// Unread implements mirror.Sighted for the session's own range. A session that cannot read it learns of no
// eviction, so the lease is lost when that has lasted for one and a half TTLs, however well it is renewed.
func (e *Epoch) Unread(err error) {
	if !commit.Denied(err) {
		return // contact is lost: the lease has its own deadline
	}
	e.sess.denials.refused(deniedRange, err)
	if e.blind == nil {
		e.blind = time.AfterFunc(e.lease.TTL()*3/2, func() { e.lease.Lose(fmt.Errorf("%w: %w", errBlind, err)) })
	}
}

// sees ends that.
func (e *Epoch) sees() {
	if e.blind != nil {
		e.blind.Stop()
		e.blind = nil
	}
	e.sess.denials.refused(deniedRange, nil)
}
