package idempotency

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/members"
)

// Store records the outcomes of requests by their keys. All Stores with one name, on sessions of one
// namespace, in all processes, are one store; give them the same options. It is safe for concurrent
// use, and lives as long as its session.
type Store struct {
	sess   *engine.Session
	client *members.Etcd
	kv     clientv3.KV // of the session
	name   string
	keys   keyspace.Store
	opts   Options
	set    *settings // of a call without options
	hashes *hashes   // with opts.Secret
	log    *zap.Logger
	warned warnings

	work   *pool
	serial *gather // serializable reads, which one member answers
	linear *gather // linearizable reads, which a majority confirms
	group  *commit.Group
	cache  cache
	space  space
	away   *away
	scopes scopes
	count  counts

	unstarted sync.Map // the records of claims of this process that are being taken back

	mu        sync.Mutex
	retention map[time.Duration]*pool // by class
	flights   map[string]*flight      // by ref: the calls in this process
	expiries  map[int64]*expiry       // by lease
	known     int64                   // greatest revision in an answer of a majority
	knownAt   moment                  // when the latest such answer was asked for
}

// NewStore returns the store of that name on a session. It does no I/O before it returns. It returns
// ErrInvalid if the session is nil, the name is not valid (see concurrency.NewSemaphore) or an option
// is out of range, and ErrClosed if the session is closed. A Store ends with its session;
// Session.Close waits for attempts in progress.
func NewStore(s *concurrency.Session, name string, opts *Options) (*Store, error) {
	if s == nil || engine.Of(s) == nil {
		return nil, fmt.Errorf("idempotency: new store %q: %w", name, invalid("the session is nil"))
	}
	if err := keyspace.CheckName(name); err != nil {
		return nil, fmt.Errorf("idempotency: new store %q: %w", name, invalid("the name %w", err))
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("idempotency: new store %q: %w", name, err)
	}
	set, err := o.settings(nil)
	if err != nil {
		return nil, fmt.Errorf("idempotency: new store %q: %w", name, err)
	}
	sess := engine.Of(s)
	if sess.Context().Err() != nil {
		return nil, fmt.Errorf("idempotency: new store %q: %w", name, ErrClosed)
	}
	st := &Store{
		sess: sess, client: sess.Etcd(), kv: sess.KV(), name: name, keys: sess.Space().Store(name), opts: o, set: set, hashes: newHashes(o.Secret),
		log:  sess.Log().With(zap.String("store", name)),
		work: newWork(sess, o.RetainUnknown), serial: newGather(sess, clientv3.WithSerializable()), linear: newGather(sess),
		group: commit.NewGroup(sess.Context(), sess.KV(), writesAtOnce, sess.Background), retention: map[time.Duration]*pool{}, flights: map[string]*flight{}, expiries: map[int64]*expiry{},
		cache: cache{most: o.CacheBytes, keep: o.CacheFor, byRef: map[string]*list.Element{}}, scopes: scopes{of: map[string]*tally{}},
	}
	st.away = newAway(sess)
	st.space = space{store: st, room: math.MaxInt64}
	st.space.enough() // so that the first request knows
	return st, nil
}

// Name returns the store's name.
func (s *Store) Name() string { return s.name }

// Options returns the options with defaults filled in, without Secret and OldSecrets.
func (s *Store) Options() Options {
	o := s.opts
	o.Secret, o.OldSecrets, o.OldCodecs = nil, nil, slices.Clone(o.OldCodecs)
	return o
}

// writesAtOnce is how many requests with writes are under way before further writes are gathered.
const writesAtOnce = 4

// together lets a write at a key be sent in one Txn with writes at other keys.
func (s *Store) together(e keyspace.Entry) commit.Together {
	return commit.Together{Group: s.group, Subjects: []string{e.Ref}}
}

// retain returns the pool of leases for outcomes that are kept for d.
func (s *Store) retain(d time.Duration) *pool {
	d = class(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.retention[d]
	if p == nil {
		p = newRetention(s.sess, d)
		s.retention[d] = p
	}
	return p
}

// saw records the revision of an answer to a request that no member can answer alone, sent at that
// time.
func (s *Store) saw(revision int64, sent moment) {
	s.away.outage.Answered()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = max(s.known, revision)
	if sent.After(s.knownAt.Time) {
		s.knownAt = sent
	}
}

// floor returns the least revision that a read by one member may have. ok is false if the latest
// known revision is too old for that.
func (s *Store) floor() (revision int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.known > 0 && aged(s.knownAt) < s.sess.TTL()/3
}

// because joins err with the error of the caller's ctx, if that has ended. The cause of ctx does not
// count: within an attempt of another store it is the end of that one's session, such as ErrClosed.
func because(ctx context.Context, err error) error { return joined(ctx.Err(), err) }

// because does the same for a ctx that is derived from the caller's, and that also ends with the
// session.
func (c *call) because(ctx context.Context, err error) error {
	ended := c.ended(ctx)
	if ended != nil && err == ctx.Err() {
		return ended
	}
	return joined(ended, err)
}

// ended returns why a ctx that is derived from the caller's has ended: the error of the caller's ctx,
// or else the session's; nil if it has not.
func (c *call) ended(ctx context.Context) error {
	if err := c.outer.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func joined(ended, err error) error {
	if ended != nil && !errors.Is(err, ended) {
		return join.Errors(ended, err)
	}
	return err
}
