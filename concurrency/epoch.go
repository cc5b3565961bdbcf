package concurrency

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/record"
)

// epoch is the life of a session on one lease. It ends when the lease is lost or
// the session is closed, and with it all its permits.
type epoch struct {
	sess  *Session
	lease *lease.Lease
	fence *commit.Fence
	keys  keyspace.Session

	ctx    context.Context // ends with the epoch
	cancel context.CancelCauseFunc
	accept context.Context // ends when no new request is taken: before ctx, on Close

	roll  *roll
	slots *slots
}

// openEpoch takes a lease and raises its fence.
func (s *Session) openEpoch(ctx context.Context) (*epoch, error) {
	l, err := lease.Grant(ctx, s.lease, lease.Options{TTL: s.opts.TTL, Margin: s.opts.Margin, Log: s.log, Later: s.later})
	if err != nil {
		return nil, err
	}
	e := &epoch{sess: s, lease: l, keys: s.space.Session(l.ID()), roll: newRoll(s.remember), slots: newSlots(s.opts.MaxPermits)}
	value := record.Session{Holder: s.opts.Holder, AtMS: nowMS()}.Encode()
	e.fence, err = commit.Raise(ctx, s.client, clientv3.LeaseID(l.ID()), e.keys.Alive(), value)
	if err != nil {
		s.background(func() { _ = s.revoke(l, err) })
		return nil, err
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	accept, refuse := context.WithCancelCause(e.ctx)
	e.accept = accept
	stop := context.AfterFunc(s.accept, func() { refuse(ErrClosed) })
	context.AfterFunc(e.ctx, func() { stop() })
	s.background(func() {
		<-l.Context().Done()
		e.end(ErrLost, l.Cause())
	})
	s.background(e.sweeps)
	s.background(func() { s.source.Follow(e.ctx, e.keys.Range, e.fence.Born(), e) })
	return e, nil
}

// end ends the epoch and all its permits. The first cause counts. Hooks are
// called only when all contexts have ended, since they may take their time.
func (e *epoch) end(cause error, reason error) {
	reason = e.sess.explain(reason)
	holders, held, first := e.roll.end(cause, reason)
	if !first {
		return
	}
	var reports []func()
	for _, h := range holders {
		if report := h.lose(cause, reason); report != nil {
			reports = append(reports, report)
		}
	}
	e.cancel(errEpoch)
	e.sess.forget(held)
	for _, report := range reports {
		report()
	}
}

// valid tells whether the lease may be trusted now. If not, the epoch is ended,
// maybe at this moment by another goroutine.
func (e *epoch) valid() bool {
	if e.lease.Valid() {
		return true
	}
	e.end(ErrLost, e.lease.Cause())
	return false
}

// whyEnded returns why an epoch has ended, for what it has left without an outcome: as an
// error that is no loss of a permit.
func (e *epoch) whyEnded() error {
	cause, reason := e.roll.why()
	if errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	return reason
}

// drop forgets the holder of a ticket, which has ended by itself.
func (e *epoch) drop(t *ticket) {
	if e.roll.drop(t) {
		e.sess.forget(1)
	}
}

// leave is for a holder that has entered the roll, and is called once.
func (e *epoch) leave() {
	if e.roll.leave() {
		e.sess.forget(1)
	}
}

// name records a ticket before its request is written.
func (e *epoch) name(t *ticket) {
	e.roll.creates(t)
	e.slots.name(t)
}

// freeSlot forgets a ticket whose key is certainly gone, and frees its slot. It may be
// called more than once.
func (e *epoch) freeSlot(t *ticket) {
	e.roll.forget(t)
	e.slots.free(t)
}

// wasteSlot forgets a ticket whose key is taken by a foreign one.
func (e *epoch) wasteSlot(t *ticket) {
	e.roll.forget(t)
	e.slots.waste(t)
}

// gone reports whether a request is one of this session's own that nobody holds or waits
// for any more: its lease is lost, or its key is being deleted.
func (e *epoch) gone(o owner) bool {
	if o.Slot.Lease == e.lease.ID() {
		return e.slots.deletesKey(o.Key)
	}
	e.sess.mu.Lock()
	defer e.sess.mu.Unlock()
	_, past := e.sess.past[o.Slot.Lease]
	return past
}

// Reset implements mirror.Handler for the session's own range.
func (e *epoch) Reset(kvs []*mvccpb.KeyValue, revision int64) {
	if revision < e.fence.Born() {
		return // the session hears of it, see rewound
	}
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
func (e *epoch) Apply(events []*clientv3.Event, _ int64) {
	for _, ev := range events {
		switch {
		case string(ev.Kv.Key) != e.keys.Alive():
			if ev.Type != clientv3.EventTypeDelete {
				e.notice(ev.Kv)
			}
		case ev.Type == clientv3.EventTypeDelete || ev.Kv.Lease != e.lease.ID():
			// On another lease, or on none, it would no longer tell
			// that ours has ended.
			e.lease.Lose(errPresence)
		}
	}
}

var errPresence = errors.New("the lease's presence key was deleted or overwritten: the lease expired or was revoked, or another client changed the key")
