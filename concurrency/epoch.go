package concurrency

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/record"
)

// errEpoch ends what waits on a lost lease: it queues anew on the next one.
var errEpoch = errors.New("the session's lease is lost")

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

	mu      sync.Mutex
	ended   bool
	cause   error
	reason  error
	permits map[int64]*Permit   // by token
	entered int                 // holders of the packages beside this one, see hold.Epoch
	inUse   bool                // something was held when the epoch ended
	slots   map[string]*slots   // by the range of the gate
	used    int                 // slots in use, in all gates
	waits   int                 // calls that wait for a slot
	ready   []chan struct{}     // of those for which none is free yet, in order
	going   map[string]struct{} // keys that are being deleted
	names   map[string]int      // keys of all requests, and by how many each is used
	mail    mail
}

// openEpoch takes a lease and raises its fence.
func (s *Session) openEpoch(ctx context.Context) (*epoch, error) {
	l, err := lease.Grant(ctx, s.lease, lease.Options{TTL: s.opts.TTL, Margin: s.opts.Margin, Log: s.log, Later: s.later})
	if err != nil {
		return nil, err
	}
	e := &epoch{sess: s, lease: l, keys: s.space.Session(l.ID()),
		permits: map[int64]*Permit{}, slots: map[string]*slots{}, going: map[string]struct{}{}, names: map[string]int{}, mail: newMail()}
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
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return
	}
	reason = e.sess.explain(reason)
	e.ended, e.cause, e.reason = true, cause, reason
	permits, held := e.permits, len(e.permits)+e.entered
	e.inUse = held > 0
	e.permits, e.entered = map[int64]*Permit{}, 0
	e.mu.Unlock()
	var lost []*LostError
	for _, p := range permits {
		if err := p.lose(cause, reason.Error()); err != nil {
			lost = append(lost, err)
		}
	}
	e.cancel(errEpoch)
	e.sess.forget(held)
	for _, err := range lost {
		e.sess.opts.Trace.lost(err)
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

// why tells how an epoch has ended.
func (e *epoch) why() (cause, reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause, e.reason
}

// whyEnded returns why an epoch has ended, for what it has left without an outcome: as an
// error that is no loss of a permit.
func (e *epoch) whyEnded() error {
	cause, reason := e.why()
	if errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	return reason
}

// releasing counts the permits that their holders have released, and of which etcd has
// not confirmed that yet.
func (e *epoch) releasing() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.permits {
		if p.given.Load() {
			n++
		}
	}
	return n
}

// add registers a permit. It fails if the epoch has ended, if the session closes,
// or if word has come already that the permit was taken away.
func (e *epoch) add(p *Permit) error {
	if !e.valid() {
		return errEpoch
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errEpoch
	}
	if n := p.claim.left.notice; n != nil {
		return noticed(p.gate.name, p.token, *n)
	}
	if !e.sess.remember() {
		return ErrClosed
	}
	p.arm()
	e.permits[p.token] = p
	if word := p.claim.left.asked; word != nil {
		p.askToStepDown(word)
	}
	return nil
}

// holds reports whether a token is that of a permit.
func (e *epoch) holds(token int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.permits[token] != nil
}

// drop forgets a permit that has ended by itself.
func (e *epoch) drop(p *Permit) {
	e.mu.Lock()
	_, known := e.permits[p.token]
	delete(e.permits, p.token)
	e.mu.Unlock()
	if known {
		e.sess.forget(1)
	}
}

// enter counts one more holder that is no permit, and returns false if the epoch has ended
// or Close has begun. It is only a number: what one holder registered with the epoch would
// have to be undone by leave, or stay until the lease ends.
func (e *epoch) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || !e.sess.remember() {
		return false
	}
	e.entered++
	return true
}

// leave is for a holder that has entered, and is called once. The end of the epoch has
// counted those that were left.
func (e *epoch) leave() {
	e.mu.Lock()
	left := !e.ended
	if left {
		e.entered--
	}
	e.mu.Unlock()
	if left {
		e.sess.forget(1)
	}
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
