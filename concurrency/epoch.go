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
	reason  error
	permits map[int64]*Permit       // by token
	notices map[int64]record.Notice // that came before their permit was known
	slots   map[string]*slots       // by the range of the gate
	used    int                     // slots in use, in all gates
}

// openEpoch takes a lease and raises its fence.
func (s *Session) openEpoch(ctx context.Context) (*epoch, error) {
	l, err := lease.Grant(ctx, s.lease, lease.Options{TTL: s.opts.TTL, Margin: s.opts.Margin, Log: s.log})
	if err != nil {
		return nil, err
	}
	e := &epoch{sess: s, lease: l, keys: s.space.Session(l.ID()),
		permits: map[int64]*Permit{}, notices: map[int64]record.Notice{}, slots: map[string]*slots{}}
	value := record.Session{Holder: s.opts.Holder, AtMS: nowMS()}.Encode()
	e.fence, err = commit.Raise(ctx, s.client, clientv3.LeaseID(l.ID()), e.keys.Alive(), value)
	if err != nil {
		l.Close(err)
		s.background(func() { s.revoke(l) })
		return nil, err
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	accept, refuse := context.WithCancelCause(e.ctx)
	e.accept = accept
	stop := context.AfterFunc(s.accept, func() { refuse(ErrClosed) })
	context.AfterFunc(e.ctx, func() { stop() })
	s.background(func() { s.source.Follow(e.ctx, e.keys.Range, e) })
	return e, nil
}

// end ends the epoch and all its permits. The first cause counts.
func (e *epoch) end(cause error, reason error) {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return
	}
	e.ended, e.reason = true, reason
	permits := e.permits
	e.permits = map[int64]*Permit{}
	e.mu.Unlock()
	for _, p := range permits {
		p.end(cause, reason.Error())
	}
	e.cancel(errEpoch)
	e.sess.forget(len(permits))
}

// valid tells whether the lease may be trusted now. If not, the epoch has ended
// when it returns, all contexts included.
func (e *epoch) valid() bool {
	if e.lease.Valid() {
		return true
	}
	e.end(ErrLost, e.lease.Cause())
	return false
}

// add registers a permit. It fails if the epoch has ended, or if word has come
// already that the permit was taken away.
func (e *epoch) add(p *Permit) error {
	if !e.valid() {
		return errEpoch
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errEpoch
	}
	if n, ok := e.notices[p.token]; ok {
		return noticed(p.gate.name, p.token, n)
	}
	p.arm()
	e.permits[p.token] = p
	e.sess.remember()
	return nil
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

// Reset implements mirror.Handler for the session's own range.
func (e *epoch) Reset(kvs []*mvccpb.KeyValue, _ int64) {
	alive := false
	for _, kv := range kvs {
		if string(kv.Key) == e.keys.Alive() {
			alive = kv.CreateRevision == e.fence.Born()
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
		if ev.Type != clientv3.EventTypeDelete {
			e.notice(ev.Kv)
		} else if string(ev.Kv.Key) == e.keys.Alive() {
			e.lease.Lose(errPresence)
		}
	}
}

var errPresence = errors.New("the lease's presence key was deleted: it expired, was revoked or taken away")

// maxNotices bounds what is kept for permits that are not known (yet).
const maxNotices = 1024

// notice takes word that one of this session's requests was ended by others.
func (e *epoch) notice(kv *mvccpb.KeyValue) {
	token, ok := e.keys.ParseNotice(string(kv.Key))
	if !ok {
		return // the presence key, or a foreign one
	}
	n, ok := record.DecodeNotice(kv.Value)
	if !ok {
		n = record.Notice{Cause: record.CauseEvicted, Reason: "the notice cannot be read"}
	}
	e.mu.Lock()
	p := e.permits[token]
	if p == nil && len(e.notices) < maxNotices {
		e.notices[token] = n
	}
	e.mu.Unlock()
	if p == nil {
		return // it stays for a caller that asks why; it goes with the lease
	}
	lost := noticed(p.gate.name, token, n)
	p.end(lost.Cause, lost.Reason)
	e.drop(p)
	e.freeSlot(p.claim)
	e.sess.background(func() {
		_, _ = commit.Remove(e.ctx, e.sess.client, string(kv.Key), kv.CreateRevision)
	})
}

// noticed turns a notice into the error that tells of it.
func noticed(name string, token int64, n record.Notice) *LostError {
	err := &LostError{Name: name, Token: token, Cause: ErrEvicted, Reason: n.Reason}
	if n.Cause == record.CauseReleased {
		err.Cause = ErrReleased
	}
	if n.By != "" {
		err.Reason = "by " + n.By
		if n.Reason != "" {
			err.Reason += ": " + n.Reason
		}
	}
	return err
}
