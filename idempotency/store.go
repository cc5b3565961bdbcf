package idempotency

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Store records the outcomes of requests by their keys. All Stores with one name, on sessions of one
// namespace, in all processes, are one store; give them the same options. It is safe for concurrent
// use, and lives as long as its session.
type Store struct {
	sess    *engine.Session
	name    string
	keys    keyspace.Store
	opts    Options
	set     *settings // of a call without options
	printer printer
	log     *zap.Logger
	warned  warnings
	count   counts

	reader      *reader
	group       *commit.Group
	work        *pool
	retention   retention
	cache       cache
	space       space
	scopes      scopes
	away        *away
	flights     flights
	expiries    expiries
	withdrawals *withdrawals
	owners      owners
	bound       either.Bound // of the wait for the end of an attempt to be recorded
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
	keys, log, away := sess.Space().Store(name), sess.Log().With(zap.String("store", name)), newAway(sess)
	st := &Store{
		sess: sess, name: name, keys: keys, opts: o, set: set, printer: newPrinter(&o), log: log,
		reader: newReader(sess, newCodecs(&o, keys.Range), away.outage), group: commit.NewGroup(sess.Context(), sess.KV(), writesAtOnce, sess.Background),
		work: newWork(sess, o.RetainUnknown), retention: retention{sess: sess, pools: map[time.Duration]*pool{}},
		cache:  cache{most: o.CacheBytes, keep: o.CacheFor, byRef: map[string]*list.Element{}},
		scopes: scopes{kv: sess.KV(), keys: keys, most: o.MaxPerScope, log: log, of: map[string]*tally{}},
		away:   away, flights: flights{of: map[string]*flight{}}, expiries: expiries{sess: sess, of: map[int64]*expiry{}}, withdrawals: withdrawalsOf(sess), owners: owners{sess: sess, of: map[int64]*owner{}},
		bound: either.Bound{For: commit.CallTimeout},
	}
	st.space = space{store: st, room: math.MaxInt64}
	st.space.enough(now()) // so that the first request knows
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

// Stats returns the counts.
func (s *Store) Stats() Stats { return s.count.now() }

// writesAtOnce is how many requests with writes are under way before further writes are gathered.
const writesAtOnce = 4

// together lets a write at a key be sent in one Txn with writes at other keys.
func (s *Store) together(e keyspace.Entry) commit.Together {
	return commit.Together{Group: s.group, Subjects: []string{e.Ref}}
}

// about wraps an error with what was attempted.
func (s *Store) about(ctx context.Context, attempted string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("idempotency: %s in store %q: %w", attempted, s.name, s.sess.Explain(because(ctx, err)))
}

// closed returns ErrClosed once the session is closed: the leases on which it would write are
// renewed no more.
func (s *Store) closed() error {
	if s.sess.Context().Err() != nil {
		return ErrClosed
	}
	return nil
}

// because joins err with the error of the caller's ctx, if that has ended. The cause of ctx does not
// count: within an attempt of another store it is the end of that one's session, such as ErrClosed.
func because(ctx context.Context, err error) error { return joined(ctx.Err(), err) }

func joined(ended, err error) error {
	if ended != nil && !errors.Is(err, ended) {
		return join.Errors(ended, err)
	}
	return err
}
