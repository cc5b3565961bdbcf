package concurrency

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/build"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/ratelimit"
	"github.com/etcdkit/etcdkit/observe"
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
type Session engine.Door[registry]

// NewSession takes a lease in etcd and starts a session. Services that share a prefix and a
// namespace share the primitives that are built on their sessions. The client's KV, Watcher
// and Lease may be wrapped by etcd's namespace package. The caller keeps the client open
// until Close has returned: the end of the client's Config.Context, such as the one that a signal ends, closes it.
//
// It returns ErrInvalid if the client is nil or has no connection, as that of v3client.New, the namespace is not valid (see
// NewSemaphore for names) or an option is out of range; errors.ErrUnsupported if the server is no etcd, or if
// etcd's gRPC proxy is between and AllowProxy is not set; an error of etcd's; or ctx's error, joined
// with the last one of etcd's, if etcd did not answer before ctx ended. After an error nothing is
// left in etcd that does not expire by itself. ctx bounds this call only; without a deadline
// in it the call lasts until etcd can be reached.
func NewSession(ctx context.Context, etcd *clientv3.Client, namespace string, opts *SessionOptions) (*Session, error) {
	switch {
	case etcd == nil:
		return nil, fmt.Errorf("new session in %q: %w", namespace, invalid("the client is nil"))
	case etcd.ActiveConnection() == nil: // as of v3client.New
		return nil, fmt.Errorf("new session in %q: %w", namespace, invalid("the client has no connection, over which leases are renewed: make it by clientv3.New"))
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
	own := &registry{horizon: horizons(ctx), reportEvery: o.ReportEvery}
	log := o.Logger.With(zap.String("namespace", namespace), zap.String("owner", o.Owner))
	core, err := engine.New(ctx, etcd, space, engine.Options{
		TTL: o.TTL, Margin: o.Margin, Owner: o.Owner, MaxPermits: o.MaxPermits, ReleaseTimeout: o.ReleaseTimeout, AllowProxy: o.AllowProxy,
		ReportEvery: o.ReportEvery, Log: log, Versions: build.Current(), Hooks: hook.New(o.Hooks, namespace, log),
	})
	if err != nil {
		return nil, fmt.Errorf("new session in %q, client with Endpoints %v: %w", namespace, etcd.Endpoints(), err)
	}
	core.Rewound.Add(own.rewound)
	return (*Session)(engine.NewDoor(core, own)), nil
}

// Owner returns the name by which other processes see this session.
func (s *Session) Owner() string { return engine.Of(s).Owner() }

// Lease returns the ID of the present lease, or 0 between two leases and after Close.
func (s *Session) Lease() clientv3.LeaseID { return engine.Of(s).Lease() }

// NamespacePrefix returns the prefix of all keys of this session's namespace: a role in etcd
// needs read and write permission for this range. If the client is wrapped by etcd's namespace package, etcd has the keys
// behind the prefix of that wrapper.
func (s *Session) NamespacePrefix() string { return engine.Of(s).Space().Root() }

// HookPanics returns how many calls of SessionOptions.Hooks have panicked since the session began, or have exited their
// goroutine by runtime.Goexit. A warning has the first one of each hook, and then one a minute with their number. A panic is contained; an exit ends the goroutine, and no report.
func (s *Session) HookPanics() int64 { return engine.Of(s).Hooks().Panics() }

// Close ends the session. Calls that wait, and new ones, return ErrClosed at once. Close then
// waits until all permits are released and all runs of schedlock and attempts of idempotency
// on this session have ended, or until ctx ends; those that are left then end with ErrClosed
// as their cause. A call within such work, whose ctx is derived from that of a permit (Permit.Context, that of Do), a run or an
// attempt of this session which has not ended, is a part of it and continues as before. A campaign is none, nor is a run of a job,
// whose tick another process may start, and NewSemaphore and the like return ErrClosed.
// So give ctx a deadline, and call Close outside of such work, for whose end it would wait. After ReportEvery a
// warning names what it waits for. A claim whose function is not called counts until it is removed. Close revokes the lease, which releases them in etcd, and waits for the
// goroutines of the session. A graceful stop is Close with a deadline; the end of a
// context of Do would interrupt its work.
//
// Some of these goroutines call functions of the program: hooks, Options.Lost of schedlock, and
// the functions of runs that a Locker starts by itself (OnMisfire, Retries, RequestRun). If one has not
// returned two seconds after ctx and the permits, runs and attempts have ended, Close returns an error
// and leaves that goroutine alone.
//
// The revocation does not depend on ctx: it happens even if ctx had ended before the call,
// and is bounded by two seconds. Close returns ctx's error with the names of what was held if it had to end that, and
// an error of etcd's if etcd has not confirmed that the lease was revoked, or a lease that was lost
// before and may still exist: unless it has ended, it then expires after its TTL.
// In every case the session is closed. Close may be called again, also concurrently: each call
// returns when the session has ended, with the same error, and the first ctx that ends is the
// one that ends the wait for holders.
func (s *Session) Close(ctx context.Context) error { return engine.Of(s).Close(ctx) }

// usable returns why nothing of that name can be made on a session, or nil.
func usable(s *Session, name string) error {
	if err := keyspace.CheckName(name); err != nil {
		return invalid("the name %w", err)
	}
	if s == nil || engine.Of(s) == nil {
		return invalid("the session is nil")
	}
	if engine.Of(s).Accepting().Err() != nil {
		return ErrClosed
	}
	return nil
}

// queue returns the session's queue of that kind and name.
func (s *Session) queue(kind keyspace.Kind, name string, fixed int64) (*sessionQueue, error) {
	if err := usable(s, name); err != nil {
		return nil, err
	}
	core, own := engine.Of(s), engine.Own(s)
	return own.queue(core, core.Space().Queue(kind, name), kinds[kind], name, fixed, nil, nil), nil
}

// kinds are the kinds of queues as hooks see them.
var kinds = map[keyspace.Kind]observe.Kind{
	keyspace.Semaphore: observe.Semaphore, keyspace.Mutex: observe.Mutex, keyspace.Election: observe.Election, keyspace.Rate: observe.Rate,
}

// registry is what the primitives of a session have in common besides its lease.
type registry struct {
	reportEvery time.Duration
	horizon     func(fixed bool) rank.Horizon

	mu     sync.Mutex // of all that follows
	queues inUse[queueKey, sessionQueue]
	bases  inUse[queueKey, queue.Base]     // by the key of the default limit
	rates  inUse[string, ratelimit.Shares] // by the range of the queue of shares
}

// horizons returns the horizons of the queues of a session.
func horizons(ctx context.Context) func(fixed bool) rank.Horizon {
	set, ok := rank.HorizonOf(ctx)
	return func(fixed bool) rank.Horizon {
		switch {
		case ok:
			return set
		case fixed:
			return rank.FixedLimit
		}
		return rank.StoredLimit
	}
}

// queueKey is by what a session knows a queue: its range, and whether the program has a total, since
// programs with one and without share nothing, not even here.
type queueKey struct {
	of    string
	total bool
}

// known returns a queue that is in use, or nil.
func (s *registry) known(as queueKey) *sessionQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues.get(as)
}

// queue returns the queue with those keys.
func (s *registry) queue(core *engine.Session, keys keyspace.Queue, kind observe.Kind, name string, fixed int64, b *queue.Base, total *sessionQueue) *sessionQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	as := queueKey{keys.Range, total != nil}
	if q := s.queues.get(as); q != nil {
		return q
	}
	q := &sessionQueue{sess: core, name: name, reportEvery: s.reportEvery, base: b, kind: kind, total: total}
	o := queue.Options{
		Session: core, Keys: keys, Name: name, Fixed: fixed, Base: b, Horizon: s.horizon(fixed > 0), ReportEvery: s.reportEvery,
		Alone: kind == observe.Election, // a request to step down names a token only
	}
	if core.Hooks().On() {
		o.Changed = q.limitChanged
	}
	if total != nil {
		o.Total = total.Queue
	}
	q.Queue = queue.New(o)
	s.queues.put(&s.mu, as, q)
	return q
}

// base returns the default limit with that key.
func (s *registry) base(core *engine.Session, key string, total bool) *queue.Base {
	s.mu.Lock()
	defer s.mu.Unlock()
	as := queueKey{key, total}
	b := s.bases.get(as)
	if b == nil {
		b = queue.NewBase(core, key, total)
		s.bases.put(&s.mu, as, b)
	}
	return b
}

// shares returns the shares of the rate that a queue divides.
func (s *registry) shares(q *sessionQueue) *ratelimit.Shares {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rates.get(q.Keys.Range)
	if r == nil {
		r = ratelimit.New(ratelimit.Options{Session: q.sess, Queue: q.Queue, Acquire: q.acquireShare})
		s.rates.put(&s.mu, q.Keys.Range, r)
	}
	return r
}

// rewound has all queues forget what they have seen: etcd's history was taken back.
func (s *registry) rewound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.bases.all { // first: the new views of the queues begin with them
		b.Rewound()
	}
	for q := range s.queues.all {
		q.Reset()
	}
}
