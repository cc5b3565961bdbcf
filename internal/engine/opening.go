package engine

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// opening begins the epochs of a session.
type opening struct{ *Session }

// once takes a lease and raises its fence, or returns an error.
func (o opening) once(ctx context.Context) (*Epoch, error) {
	met := o.meets()
	l, err := o.grant(ctx)
	if err != nil {
		return nil, err
	}
	e, err := o.raise(ctx, l, met)
	if err != nil {
		o.discard(l, err)
	}
	return e, err
}

// repeated takes a new lease, however long that takes. It returns nil if the session or its client is closed. A
// lease whose presence key is denied is kept, and the key is tried again: a new lease for each try would cost
// etcd two Raft entries.
func (o opening) repeated() *Epoch {
	var l *lease.Lease // without a presence key
	var before met     // its grant
	var pause commit.Backoff
	denied := commit.Backoff{Least: 100 * time.Millisecond, Most: commit.DeniedPause}
	for {
		var e *Epoch
		var err error
		if l == nil {
			before = o.meets()
			l, err = o.grant(o.work.accept)
		}
		if err == nil {
			e, err = o.raise(o.work.accept, l, before)
		}
		if err == nil {
			o.denials.refused(deniedLease, nil)
			o.denials.forget(deniedRenewal) // of a lease that was kept without a presence key
			return e
		}
		if l != nil && !(commit.Denied(err) && l.Valid()) {
			o.discard(l, err)
			l = nil
		}
		next := &pause
		if commit.Denied(err) {
			o.denials.refused(deniedLease, err)
			if !commit.NoLogin(err) { // a login has a pause of its own
				next = &denied
			}
		}
		o.opts.Log.Debug("the session could not take a new lease yet", zap.Error(err))
		o.mu.Lock()
		o.trouble = o.Explain(err)
		o.mu.Unlock()
		if next.Wait(o.work.accept, nil) != nil {
			if l != nil {
				o.discard(l, ErrClosed)
			}
			return nil
		}
	}
}

// grant takes a lease.
func (o opening) grant(ctx context.Context) (*lease.Lease, error) {
	return lease.Grant(ctx, o.lease, lease.Options{
		TTL: o.opts.TTL, Margin: o.opts.Margin, Log: o.opts.Log, Later: func(fn func(context.Context)) { o.Later(fn) }, Renewed: o.renewed(),
		Denied: func(err error) { o.denials.refused(deniedRenewal, err) },
	})
}

// renewed returns what reports the renewals of a lease, or nil if there are no hooks.
func (o opening) renewed() func(id int64, age, ttl time.Duration) {
	if !o.opts.Hooks.On() {
		return nil
	}
	return func(id int64, age, ttl time.Duration) {
		o.Post(observe.LeaseRenewed{Namespace: o.opts.Hooks.Namespace(), Owner: o.opts.Owner, Lease: id, Age: age, TTL: ttl, Margin: o.opts.Margin})
	}
}

// met is what was seen of a history at some time.
type met struct {
	of   *mirror.History
	seen int64
}

func (o opening) meets() met {
	h := o.History()
	return met{h, h.Seen()}
}

// raise raises the fence of an epoch on a lease. before is what was met before that was granted: a presence key that is not
// newer shows that etcd's history was taken back, and the lease is of the present one.
func (o opening) raise(ctx context.Context, l *lease.Lease, before met) (*Epoch, error) {
	s := o.Session
	e := &Epoch{sess: s, lease: l, keys: s.space.Session(l.ID()), roll: newRoll(s.work.add), slots: newSlots(s.opts.MaxPermits)}
	value := record.Session{
		Owner: s.opts.Owner, ID: s.id, AtMS: time.Now().UnixMilli(), Etcdkit: s.opts.Versions.Etcdkit, Program: s.opts.Versions.Program,
	}.Encode()
	var err error
	if e.fence, err = commit.Raise(ctx, s.kv, clientv3.LeaseID(l.ID()), e.keys.Alive(), value); err != nil {
		return nil, err
	}
	if e.history = before.of; e.fence.Born() <= before.seen {
		s.Rewind(before.of)
		e.history = s.History()
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.accept, e.working = accepting(e.ctx, s.work.accept), accepting(e.ctx, s.work.working)
	s.Background(func() {
		<-l.Context().Done()
		e.end(ErrLost, l.Cause())
	})
	s.Background(e.sweeps)
	s.Background(func() { s.source.Follow(e.ctx, e.keys.Range, e.fence.Born(), e) })
	return e, nil
}

// discard revokes a lease that has no presence key, in the background.
func (o opening) discard(l *lease.Lease, cause error) {
	o.Background(func() { _ = o.revoke(l, cause) })
}
