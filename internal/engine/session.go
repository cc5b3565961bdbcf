package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/build"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/members"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/observe"
)

// Options configure a Session. All fields are set but Hooks, which may be nil.
type Options struct {
	TTL, Margin    time.Duration
	Owner          string         // by which other processes see the session
	Versions       build.Versions // that it shows them
	MaxPermits     int
	ReleaseTimeout time.Duration // how long a call waits for etcd to confirm the end of its work
	AllowProxy     bool          // work through etcd's gRPC proxy
	ReportEvery    time.Duration // after which Close says what it waits for
	Log            *zap.Logger

	Hooks *hook.Set
}

// Session is one lease after the other, each with the requests on it. It is safe for
// concurrent use.
type Session struct {
	etcd      *members.Etcd
	kv        *recorded
	contact   contact
	denials   *denials
	opts      Options
	id        string // that no other session has
	space     keyspace.Space
	lease     lease.API
	leaseless bool // see Leaseless
	source    *mirror.Source
	nonces    atomic.Uint64 // the number of the latest Nonce
	history   atomic.Pointer[mirror.History]
	rewinding sync.Mutex // Rewind is under way

	requests

	Lockers atomic.Int64 // how many there are on this session
	Rewound Subscribers  // what was seen of etcd has never been: a backup was restored

	// Asking and Requeue are for calls whose requests are gone: the reason is asked for, and
	// they queue anew, a few at a time.
	Asking, Requeue Turns
	// Sending is for calls that read the queue or write a request, a bounded number at a time.
	Sending Turns

	work *work

	// Two contexts end one after the other, after those of the work. Both end with the client.
	over    context.CancelFunc // begins the two seconds that Close takes after its wait for work
	ctx     context.Context    // ends when Close has waited for the holders
	stop    context.CancelFunc
	late    context.Context // ends two seconds later: for the last requests to etcd
	abandon context.CancelFunc

	goroutines
	ran        chan struct{}      // closed when run has ended
	rush       context.CancelFunc // when a ctx of Close has ended
	left       context.Context    // ends two seconds after rush was called and ctx has ended: Close leaves the callbacks
	shut, said sync.Once          // said: what Close waits for

	mu      sync.Mutex
	current *Epoch             // nil between leases
	turn    chan struct{}      // closed and replaced when current changes
	trouble error              // why there is no lease, if etcd refuses one
	past    map[int64]struct{} // leases that were lost; they may live on in etcd

	closeErr error
}

// writesAtOnce is how many requests of a kind are under way before further ones are gathered. As many
// callers are about what etcd's own batches of proposals serve as well.
const writesAtOnce = 8

// New takes a lease in etcd and starts a session. ctx bounds this call only. After an error
// nothing is left in etcd that does not expire by itself. Leaseless says what a ctx of it changes.
func New(ctx context.Context, etcd *clientv3.Client, space keyspace.Space, opts Options) (*Session, error) {
	in := loginOf(etcd)
	s := &Session{
		etcd: members.Of(etcd, opts.Log, in.pending), opts: opts, id: rand.Text()[:16], space: space,
		turn: make(chan struct{}), past: map[int64]struct{}{}, ran: make(chan struct{}), goroutines: goroutines{returned: make(chan struct{})},
		Asking: Turns{atOnce: requeueAtOnce}, Requeue: Turns{atOnce: requeueAtOnce, gather: gatherFor}, Sending: Turns{atOnce: sendsAtOnce},
	}
	s.denials = newDenials(opts.Log, s.Explain, in.asks)
	s.kv = &recorded{s.etcd.KV, recording{&s.contact, in}, opening{s}.meets, s.Rewind}
	s.lease = leases{lease.Etcd(etcd, s.etcd.Leases), recording{&s.contact, in}}
	s.history.Store(mirror.NewHistory())
	seen := func() { s.contact.answer(nil, nil) }
	s.source = &mirror.Source{KV: s.kv, Watcher: s.etcd.Watcher, Refresh: opts.TTL, Log: opts.Log, Seen: seen, History: s.history.Load, Rewound: s.Rewind, Enter: in.enter}
	s.ctx, s.stop = context.WithCancel(etcd.Ctx())
	s.work = newWork(etcd.Ctx(), context.WithValue(s.ctx, helperKey{}, s))
	over, end := context.WithCancel(s.ctx)
	s.over = end
	s.late, s.abandon = context.WithCancel(etcd.Ctx())
	context.AfterFunc(s.ctx, in.use())
	together := func() *commit.Group { return commit.NewGroup(s.ctx, s.kv, writesAtOnce, s.Background) }
	s.requests = requests{kv: s.kv, space: space, creations: together(), removals: together()}
	context.AfterFunc(over, func() { time.AfterFunc(2*time.Second, s.abandon) })
	s.left, s.rush = leaving(over)
	open, cancel := s.Open(ctx)
	defer cancel()
	if s.leaseless = ctx.Value(leaselessKey{}) != nil; s.leaseless {
		return s.openLeaseless(open)
	}
	e, err := openFirst(open, s)
	if err != nil {
		if s.work.accept.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		s.work.refuse()
		s.stop()
		context.AfterFunc(s.late, s.etcd.Close)
		return nil, s.Explain(err)
	}
	s.current = e
	s.Background(func() { s.run(e) })
	return s, nil
}

// Etcd returns how the session calls etcd, with the caller's client.
func (s *Session) Etcd() *members.Etcd { return s.etcd }

// KV returns its reads and Txns, whose answers show whether etcd is available.
func (s *Session) KV() clientv3.KV { return s.kv }

// Space returns the keys of the session's namespace.
func (s *Session) Space() keyspace.Space { return s.space }

// Source returns what watches and lists ranges for the session.
func (s *Session) Source() *mirror.Source { return s.source }

// Log returns the session's logger.
func (s *Session) Log() *zap.Logger { return s.opts.Log }

// Hooks returns the session's hooks, nil if it has none.
func (s *Session) Hooks() *hook.Set { return s.opts.Hooks }

// Post reports an event of the session to its hooks, in the background. The caller may hold locks.
func (s *Session) Post(e observe.Event) { s.opts.Hooks.Post(s.Callback, e) }

// Owner returns the name by which other processes see the session.
func (s *Session) Owner() string { return s.opts.Owner }

// TTL returns the time that was asked for between a renewal and the end of the lease.
func (s *Session) TTL() time.Duration { return s.opts.TTL }

// Margin returns how long before its end the lease is trusted no more.
func (s *Session) Margin() time.Duration { return s.opts.Margin }

// ReleaseTimeout returns how long a call waits for etcd to confirm the end of its work.
func (s *Session) ReleaseTimeout() time.Duration { return s.opts.ReleaseTimeout }

// Nonce returns a text that this session has returned never before.
func (s *Session) Nonce() string { return strconv.FormatUint(s.nonces.Add(1), 36) }

// Context returns a context that ends when Close has waited for the holders.
func (s *Session) Context() context.Context { return s.ctx }

// Accepting returns a context that ends when Close begins.
func (s *Session) Accepting() context.Context { return s.work.accept }

// Lease returns the ID of the present lease, or 0 between two leases and after Close.
func (s *Session) Lease() clientv3.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return 0
	}
	return s.current.Lease()
}

// Explain adds to an error that denies permission what an operator has to change.
func (s *Session) Explain(err error) error {
	return commit.Explain(err, commit.Asker{Prefix: s.space.Root(), Wrapped: s.etcd.Wrapped, User: s.etcd.Client.Username})
}

// History returns etcd's present history, as far as the session has seen it.
func (s *Session) History() *mirror.History { return s.history.Load() }

// See records a revision of etcd that was met.
func (s *Session) See(revision int64) { s.history.Load().See(revision) }

// Rewind forgets what was seen of a history, and loses the lease that was taken in it. A write that got a revision
// which was met before it was sent shows that this is due, at once; lists that stay older than what was
// seen show it in time. Several calls find the same: for those after the first it does nothing.
func (s *Session) Rewind(of *mirror.History) {
	s.rewinding.Lock() // a call that comes second returns when all that was seen is forgotten, and the lease lost
	defer s.rewinding.Unlock()
	if !s.history.CompareAndSwap(of, mirror.NewHistory()) {
		return
	}
	s.opts.Log.Warn("etcd's history was taken back: tokens may repeat", zap.Int64("seen", of.Seen()))
	s.Rewound.call()
	of.End()
	s.mu.Lock()
	e := s.current
	s.mu.Unlock()
	if e != nil && e.history == of {
		e.lease.Lose(errRewound)
	}
}

// Get reads one key, linearizably.
func (s *Session) Get(ctx context.Context, key string) ([]*mvccpb.KeyValue, error) {
	resp, err := s.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	return resp.Kvs, nil
}

// Read reads what the options say, linearizably: see commit.Read.
func (s *Session) Read(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) { return s.kv.Get(call, key, opts...) })
}

// run sees one lease after the other to its end.
func (s *Session) run(e *Epoch) {
	defer close(s.ran)
	for e != nil {
		select {
		case <-e.ctx.Done():
		case <-s.ctx.Done():
			s.become(nil)
			s.Post(observe.SessionClosed{Namespace: s.opts.Hooks.Namespace(), Owner: s.opts.Owner})
			e.end(ErrClosed, errors.New("the session or its client was closed while it was held"))
			if err := s.revoke(e.lease, ErrClosed); err != nil {
				s.fail(leftToExpire(s, e.lease, err))
			}
			return
		}
		lost, cause := e.lease, e.lease.Cause()
		s.denials.forget(deniedRenewal, deniedRange, deniedNotice)
		s.mu.Lock()
		s.past[lost.ID()] = struct{}{}
		s.mu.Unlock()
		s.become(nil)
		// The lease may still exist in etcd, with the keys of permits that have
		// ended.
		inUse := e.roll.inUse
		s.Background(func() {
			if inUse {
				s.grace(lost, cause)
			}
			bury(s, lost, cause)
		})
		s.opts.Log.Warn("the session lost its lease, and all permits, runs and attempts on it", zap.String("lease", fmt.Sprintf("%016x", lost.ID())), zap.Error(s.Explain(cause)))
		since := time.Now()
		s.Post(observe.SessionLost{Namespace: s.opts.Hooks.Namespace(), Owner: s.opts.Owner, Lease: lost.ID(), Cause: cause})
		if e = (opening{s}).repeated(); e != nil {
			s.become(e)
			s.opts.Log.Info("the session has a new lease", zap.String("lease", fmt.Sprintf("%016x", e.lease.ID())))
			s.Post(observe.SessionRecovered{Namespace: s.opts.Hooks.Namespace(), Owner: s.opts.Owner, Lease: e.lease.ID(), After: time.Since(since)})
		} else {
			s.Post(observe.SessionClosed{Namespace: s.opts.Hooks.Namespace(), Owner: s.opts.Owner, Lost: true})
		}
	}
}

// grace waits out the margin of a lease that was lost at its deadline, or because it was blind, while
// something was held on it. Its permits' contexts have just ended, and what works under them needs a moment to
// stop: that is what the margin leaves, and to revoke the lease at once would take it.
func (s *Session) grace(l *lease.Lease, cause error) {
	end := l.Deadline()
	switch {
	case errors.Is(cause, errBlind):
		end = time.Now()
	case !errors.Is(cause, lease.ErrDeadline):
		return
	}
	t := time.NewTimer(time.Until(end.Add(s.opts.Margin)))
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

// Later is Background for an fn whose ctx outlasts the session by two seconds: for what must not stay in etcd after it.
func (s *Session) Later(fn func(context.Context)) bool {
	return s.Background(func() { fn(s.late) })
}

// become sets the present epoch.
func (s *Session) become(e *Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.trouble = e, nil
	close(s.turn)
	s.turn = make(chan struct{})
	if e != nil && e.history != s.history.Load() { // Rewind has not found it
		e.lease.Lose(errRewound)
	}
}

// Live returns the present epoch, and waits for one between two leases. It
// returns ErrClosed, ctx's error joined with why there is no lease, or ErrLeaseless.
func (s *Session) Live(ctx context.Context) (*Epoch, error) { return LiveAt(ctx, s, lease.Now()) }

// LiveAt is Live by a reading of the clocks that the caller has made just now.
func LiveAt(ctx context.Context, s *Session, at lease.Moment) (*Epoch, error) {
	if s.leaseless {
		return nil, ErrLeaseless
	}
	for ; ; at = lease.Now() {
		s.mu.Lock()
		e, turn := s.current, s.turn
		s.mu.Unlock()
		if Refuses(ctx, s) {
			return nil, ErrClosed
		}
		if e != nil && e.ValidAt(at) {
			return e, nil
		}
		select {
		case <-turn: // an epoch that has ended gives way at once
		case <-Accepts(ctx, s).Done():
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, join.Errors(ctx.Err(), s.trouble)
		}
	}
}

// Trusted reports whether the session has a lease that may be trusted now.
func (s *Session) Trusted() bool {
	s.mu.Lock()
	e := s.current
	s.mu.Unlock()
	return e != nil && e.Valid()
}

// Open derives a ctx that also ends when the session accepts no call with ctx any more, with ErrClosed as its cause. If that is
// so already, ctx has ended when Open returns.
func (s *Session) Open(ctx context.Context) (context.Context, context.CancelFunc) {
	c := either.Of(ctx, Accepts(ctx, s), ErrClosed)
	return c, c.Release
}
