package concurrency

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	permits map[int64]*Permit        // by token
	entered int                      // holders of the packages beside this one, see hold.Epoch
	notices map[int64]record.Notice  // that came before their permit was known
	asked   map[int64]*StepDownError // the same, of requests to step down
	slots   map[string]*slots        // by the range of the gate
	used    int                      // slots in use, in all gates
	going   map[string]struct{}      // keys that are being deleted
	names   map[string]int           // keys of all requests, and by how many each is used
}

// openEpoch takes a lease and raises its fence.
func (s *Session) openEpoch(ctx context.Context) (*epoch, error) {
	l, err := lease.Grant(ctx, s.lease, lease.Options{TTL: s.opts.TTL, Margin: s.opts.Margin, Log: s.log, Later: s.later})
	if err != nil {
		return nil, err
	}
	e := &epoch{sess: s, lease: l, keys: s.space.Session(l.ID()),
		permits: map[int64]*Permit{}, notices: map[int64]record.Notice{}, asked: map[int64]*StepDownError{}, slots: map[string]*slots{}, going: map[string]struct{}{}, names: map[string]int{}}
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
	e.ended, e.cause, e.reason = true, cause, reason
	permits, held := e.permits, len(e.permits)+e.entered
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
	if n, ok := e.notices[p.token]; ok {
		return noticed(p.gate.name, p.token, n)
	}
	if !e.sess.remember() {
		return ErrClosed
	}
	p.arm()
	e.permits[p.token] = p
	if word := e.asked[p.token]; word != nil {
		delete(e.asked, p.token)
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

var errPresence = errors.New("the lease's presence key was deleted or taken over: the lease expired, was revoked, or somebody meddled")

// maxNotices bounds what is kept for permits that are not known (yet), beyond one
// for each live request.
const maxNotices = 1024

// notice takes word that one of this session's requests was ended by others, and
// removes it from etcd. For a request that is no permit (yet) it is kept here for
// the caller, who will ask why.
func (e *epoch) notice(kv *mvccpb.KeyValue) {
	if token, ok := e.keys.ParseStepDown(string(kv.Key)); ok {
		e.stepDown(token, kv)
		return
	}
	token, ok := e.keys.ParseNotice(string(kv.Key))
	if !ok {
		return // a foreign key
	}
	n, ok := record.DecodeNotice(kv.Value)
	if !ok {
		n = record.Notice{Cause: record.CauseEvicted, Reason: "the notice cannot be read"}
	}
	e.mu.Lock()
	p := e.permits[token]
	if p == nil {
		if len(e.notices) >= maxNotices+e.sess.opts.MaxPermits {
			forgetOldest(e.notices)
		}
		e.notices[token] = n
	}
	e.mu.Unlock()
	if p != nil {
		word := noticed(p.gate.name, token, n)
		lost := p.lose(word.Cause, word.Reason)
		e.drop(p)
		e.freeSlot(p.claim)
		if lost != nil {
			// Not here: this goroutine watches the presence key.
			e.sess.background(func() { e.sess.opts.Trace.lost(lost) })
		}
	}
	e.sess.background(func() {
		_, _ = commit.Erase(e.ctx, e.sess.client, string(kv.Key), kv.CreateRevision, nil)
	})
}

// forgetOldest drops the word on the oldest request: its caller has given up long ago.
func forgetOldest[W any](words map[int64]W) {
	delete(words, slices.Min(slices.Collect(maps.Keys(words))))
}

// noticed turns a notice into the error that tells of it.
func noticed(name string, token int64, n record.Notice) *LostError {
	err := &LostError{Name: name, Token: token, Cause: ErrEvicted, Reason: because(n)}
	if n.Cause == record.CauseReleased {
		err.Cause = ErrReleased
	}
	return err
}

// because tells who has left a notice, and why.
func because(n record.Notice) string {
	switch {
	case n.By == "":
		return n.Reason
	case n.Reason == "":
		return "by " + n.By
	}
	return "by " + n.By + ": " + n.Reason
}
