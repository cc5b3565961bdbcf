package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Session is this process's connection to a namespace in etcd: a lease that is kept alive for
// as long as the process lives, and what is held on it. Every primitive is built on a
// session; one per process is enough.
//
// If the lease is lost, all permits that were granted on it are lost: their contexts end. The
// session then takes a new lease by itself, calls that wait join their queues again, and new
// calls work as before; nothing has to be built anew.
//
// A Session is safe for concurrent use.
type Session struct {
	client  *client
	contact contact
	opts    SessionOptions
	space   keyspace.Space
	lease   lease.API
	source  *mirror.Source
	log     *zap.Logger
	nonces  atomic.Uint64 // tells the attempts to create a request apart
	seen    atomic.Int64  // greatest revision of etcd that was ever met

	// Calls whose requests are gone: what has become of them is asked, and they queue
	// anew, a few at a time.
	asking, requeue requeue
	// Calls that read the queue or write a request, a bounded number at a time.
	sending requeue

	// Three contexts end one after the other. All end with the client.
	accept  context.Context // ends when Close begins: no new work
	refuse  context.CancelFunc
	ctx     context.Context // ends when Close has waited for the holders
	stop    context.CancelFunc
	late    context.Context // ends two seconds later: for what etcd must still be told
	abandon context.CancelFunc

	wg   sync.WaitGroup
	ran  chan struct{} // closed when run has ended
	shut sync.Once

	mu       sync.Mutex
	current  *epoch        // nil between leases
	turn     chan struct{} // closed and replaced when current changes
	trouble  error         // why there is no lease, if etcd refuses one
	gates    map[string]weak.Pointer[gate]
	past     map[int64]struct{} // leases that were lost; they may live on in etcd
	held     int                // live permits
	idle     chan struct{}      // closed when Close has begun and none is live
	closing  bool
	finished bool // no goroutine is started any more

	closeErr error
}

// NewSession takes a lease in etcd and starts a session. Services that share a prefix and a
// namespace share the primitives that are built on their sessions. The client's KV, Watcher
// and Lease may be wrapped by etcd's namespace package. The caller keeps the client open
// until Close has returned.
//
// It returns ErrInvalid if the client is nil, the namespace is not valid (see NewSemaphore
// for names) or an option is out of range; an error of etcd's; or ctx's error, joined with
// the last one of etcd's, if etcd did not answer before ctx ended. After an error nothing is
// left in etcd that does not expire by itself. ctx bounds this call only; without a deadline
// in it the call lasts until etcd can be reached.
func NewSession(ctx context.Context, etcd *clientv3.Client, namespace string, opts *SessionOptions) (*Session, error) {
	if etcd == nil {
		return nil, fmt.Errorf("new session in %q: %w", namespace, invalid("the client is nil"))
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new session in %q: %w", namespace, err)
	}
	space, err := keyspace.New(o.Prefix, namespace)
	if err != nil {
		return nil, fmt.Errorf("new session in %q: %w", namespace, invalid("%w", err))
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("new session in %q: %w", namespace, err)
	}
	s := &Session{
		opts: o, space: space,
		log:   o.Logger.With(zap.String("namespace", namespace), zap.String("holder", o.Holder)),
		turn:  make(chan struct{}),
		gates: map[string]weak.Pointer[gate]{}, past: map[int64]struct{}{}, ran: make(chan struct{}), idle: make(chan struct{}),
		asking: requeue{atOnce: requeueAtOnce}, requeue: requeue{atOnce: requeueAtOnce, gather: gatherFor}, sending: requeue{atOnce: sendsAtOnce},
	}
	s.client = &client{Client: etcd, contact: &s.contact}
	s.lease = leases{API: lease.Etcd(etcd), contact: &s.contact}
	seen := func(revision int64) { s.contact.answer(time.Time{}, nil); s.see(revision) }
	s.source = &mirror.Source{KV: s.client, Watcher: etcd, Refresh: o.TTL, Log: s.log, Seen: seen, Met: s.seen.Load, Rewound: func() { s.rewound() }}
	s.accept, s.refuse = context.WithCancel(etcd.Ctx())
	s.ctx, s.stop = context.WithCancel(etcd.Ctx())
	s.late, s.abandon = context.WithCancel(etcd.Ctx())
	context.AfterFunc(s.ctx, func() { time.AfterFunc(2*time.Second, s.abandon) })
	opening, cancel := s.untilClosed(ctx)
	defer cancel()
	e, err := s.openEpoch(opening)
	if err != nil {
		if s.accept.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		s.refuse()
		s.stop()
		return nil, fmt.Errorf("new session in %q at %v: %w", namespace, etcd.Endpoints(), s.explain(err))
	}
	s.current = e
	s.background(func() { s.run(e) })
	return s, nil
}

// Holder returns the name by which other processes see this session.
func (s *Session) Holder() string { return s.opts.Holder }

// Lease returns the ID of the present lease, or 0 between two leases and after Close.
func (s *Session) Lease() clientv3.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return 0
	}
	return clientv3.LeaseID(s.current.lease.ID())
}

// NamespacePrefix returns the prefix of all keys of this session's namespace: a role in etcd
// needs read and write permission for this range.
func (s *Session) NamespacePrefix() string { return s.space.Root() }

// explain adds to an error that denies permission what an operator has to change.
func (s *Session) explain(err error) error { return commit.Explain(err, s.space.Root()) }

// background runs fn in a goroutine that Close waits for. After Close it does
// nothing and returns false: the lease, with all its keys, is gone then.
func (s *Session) background(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return false
	}
	s.wg.Go(fn)
	return true
}

// run sees one lease after the other to its end.
func (s *Session) run(e *epoch) {
	defer close(s.ran)
	for e != nil {
		select {
		case <-e.ctx.Done():
		case <-s.ctx.Done():
			s.become(nil)
			e.end(ErrClosed, errors.New("the session or its client was closed while it was held"))
			if err := s.revoke(e.lease, ErrClosed); err != nil {
				s.fail(fmt.Errorf("close session: lease %016x is left to expire: %w", e.lease.ID(), err))
			}
			return
		}
		lost, cause := e.lease, e.lease.Cause()
		s.mu.Lock()
		s.past[lost.ID()] = struct{}{}
		s.mu.Unlock()
		s.become(nil)
		// The lease may still live in etcd, with permits that nobody
		// holds any more.
		inUse := e.roll.inUse
		s.background(func() {
			if inUse {
				s.grace(lost, cause)
			}
			if err := s.revoke(lost, cause); err != nil {
				s.log.Debug("the lost lease could not be revoked and will expire", zap.Error(err))
			}
		})
		s.log.Warn("the session lost its lease, and all permits, runs and attempts on it", zap.String("lease", fmt.Sprintf("%016x", lost.ID())), zap.Error(s.explain(cause)))
		s.opts.Trace.sessionLost(clientv3.LeaseID(lost.ID()), cause)
		if e = s.reopen(); e != nil {
			s.become(e)
			s.log.Info("the session has a new lease", zap.String("lease", fmt.Sprintf("%016x", e.lease.ID())))
			s.opts.Trace.sessionRenewed(clientv3.LeaseID(e.lease.ID()))
		}
	}
}

// grace waits out the margin of a lease that was lost at its deadline while something
// was held on it. Its permits' contexts have just ended, and what works under them needs a moment to stop:
// that is what the margin leaves, and to revoke the lease at once would take it.
func (s *Session) grace(l *lease.Lease, cause error) {
	if !errors.Is(cause, lease.ErrDeadline) {
		return
	}
	t := time.NewTimer(time.Until(l.Deadline().Add(s.opts.Margin)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// revoke ends a lease here and in etcd. It repeats until that is certain, or
// until two seconds after the session's end.
func (s *Session) revoke(l *lease.Lease, cause error) error {
	l.Close(cause)
	return l.Revoke(s.late)
}

// later runs fn in the background, with a ctx that outlasts the session by two
// seconds.
func (s *Session) later(fn func(context.Context)) { s.background(func() { fn(s.late) }) }

// reopen takes a new lease, however long that takes. It returns nil if the
// session or its client is closed.
func (s *Session) reopen() *epoch {
	var pause commit.Backoff
	for {
		e, err := s.openEpoch(s.accept)
		if err == nil {
			return e
		}
		s.log.Debug("the session could not take a new lease yet", zap.Error(err))
		s.mu.Lock()
		s.trouble = s.explain(err)
		s.mu.Unlock()
		if pause.Wait(s.accept, nil) != nil {
			return nil
		}
	}
}

// become sets the present epoch.
func (s *Session) become(e *epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.trouble = e, nil
	close(s.turn)
	s.turn = make(chan struct{})
}

// live returns the present epoch, and waits for one between two leases. It
// returns ErrClosed, or ctx's error joined with why there is no lease.
func (s *Session) live(ctx context.Context) (*epoch, error) {
	for {
		s.mu.Lock()
		e, turn := s.current, s.turn
		s.mu.Unlock()
		if s.accept.Err() != nil {
			return nil, ErrClosed
		}
		if e != nil && e.valid() {
			return e, nil
		}
		select {
		case <-turn: // an epoch that has ended gives way at once
		case <-s.accept.Done():
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, errors.Join(ctx.Err(), s.trouble)
		}
	}
}

// untilClosed derives a ctx that also ends when Close begins.
func (s *Session) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.accept, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// remember counts one more permit. It returns false if Close has begun: then
// nothing is granted any more.
func (s *Session) remember() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.held++
	}
	return !s.closing
}

func (s *Session) forget(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= n
	if n > 0 && s.held == 0 && s.closing {
		close(s.idle)
	}
}

// stillHeld reports whether a permit is held that its holder has not released. One whose
// release etcd has not confirmed is not: revoking the lease frees it as well.
func (s *Session) stillHeld() bool {
	s.mu.Lock()
	held, e := s.held, s.current
	s.mu.Unlock()
	return e == nil && held > 0 || e != nil && held > e.roll.releasing()
}

// fail notes an error for Close to return.
func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeErr = errors.Join(s.closeErr, err)
}

// Close ends the session. Calls that wait, and new ones, return ErrClosed at once. Close then
// waits until all permits are released, or until ctx ends; permits that are still held then
// end with ErrClosed as their cause. It revokes the lease, which releases them in etcd, and
// returns when no goroutine of the session is left. A graceful stop is Close with a
// deadline; the end of a context of Do would interrupt its work.
//
// The revocation does not depend on ctx: it happens even if ctx had ended before the call,
// and is bounded by two seconds. Close returns ctx's error if it had to end permits, and an
// error of etcd's if the lease could not be revoked; the lease then expires after its TTL. In
// every case the session is closed. Close may be called again, also concurrently: each call
// returns when the session has ended, with the same error, and the first ctx that ends is the
// one that ends the wait for holders.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		if s.held == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	s.refuse()
	select {
	case <-s.idle:
	case <-s.ctx.Done():
	case <-ctx.Done():
		select {
		case <-s.idle:
		case <-s.ctx.Done():
		default:
			if s.stillHeld() {
				s.fail(fmt.Errorf("close session: permits, runs or attempts had not ended: %w", ctx.Err()))
			}
		}
	}
	s.stop()
	s.shut.Do(func() {
		<-s.ran // it may still start what must be told to etcd
		s.mu.Lock()
		s.finished = true
		s.mu.Unlock()
		s.wg.Wait()
		s.abandon()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeErr
}

func nowMS() int64 { return time.Now().UnixMilli() }
