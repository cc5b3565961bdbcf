package concurrency

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/entry"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/observe"
)

// KeyedLimiter limits how many permits requests of the same key hold at the same time, for any
// number of keys: users, tenants, models, routes. Each key is a Semaphore of its own, whose limit
// is the limiter's default unless SetLimit of that Semaphore has changed it. With
// KeyedLimiterOptions.Total it also limits the permits of all keys together.
//
// Requests of one key are admitted there in the order in which etcd received them. Without a total
// they hold a permit then, and never wait for those of another key. With one, a request that is
// admitted at its key joins the queue of the total, and holds a permit when it is admitted there as
// well, in the order in which the requests joined. Of two requests that are admitted at their key
// together, either may join first. A key's requests in the queue of the total never exceed the key's
// limit at their admission: while the limits of the busy keys add up to less than the total, other
// keys do not wait for them. Limits are ceilings, not guaranteed shares.
//
// A key without requests, whose limit was never changed, has nothing stored in etcd, and nothing in
// this process.
//
// A KeyedLimiter is safe for concurrent use and need not be closed.
type KeyedLimiter struct {
	sess   *engine.Session
	own    *registry
	keys   keyspace.Limiter
	base   *queue.Base
	total  *sessionQueue // nil without a total
	limits *entry.Agreement
}

// KeyedLimiterOptions configure a KeyedLimiter. nil means all defaults.
type KeyedLimiterOptions struct {
	// Total limits the permits of all keys together: at least 1, or 0 for no such limit. All
	// programs that use the limiter must have a total or none, see ErrLimitMismatch; its number is
	// stored and compared as the default limit is. Defaults to 0.
	Total int
	// MaxTotalWaiters bounds the queue of the total: a call that would wait there behind that many
	// others returns a *FullError with LevelTotal instead. A call may be refused so after it has
	// waited at its key. Requests that this session was removing before do not count. It costs a read
	// only of a queue that has heavier requests, or whose limit was lowered, and one of a few keys if
	// such requests could change the answer. It counts for the calls of this program; the option
	// MaxWaiters of a call bounds the queue of its key alone. Defaults to 0: no bound.
	MaxTotalWaiters int
	// MaxKeys bounds how many keys are live at the same time, in all processes: have a request in
	// etcd, or a limit of their own, also one that was cleared. A call for a permit of another key
	// returns ErrTooMany then, as of a count at most a second ago. It bounds what a client can store in
	// etcd that chooses its key, so it need not be exact: on one count each process may admit 1/64 of
	// the keys that are free, or 16 if that is more, and a count does not show what other processes
	// are writing. If all fill the limiter at the same moment, each may admit up to MaxKeys;
	// otherwise each other process exceeds MaxKeys by at most that part. SetLimit is not bounded. A count is one read; names are read only where the
	// limiter has as many requests and limits as MaxKeys. Defaults to 100,000; at most math.MaxInt32.
	MaxKeys int
	// AdoptLimit accepts the default limit and the total that are stored in etcd, instead of failing
	// with a *LimitMismatchError if they differ from this program's. See SemaphoreOptions.AdoptLimit.
	// Whether there is a total has to be the same all the same, except for Status and Watch, which show
	// what is stored. Defaults to false.
	AdoptLimit bool
}

// NewKeyedLimiter returns the limiter of that name. It does no I/O. limit is the default for each
// key. The first call for a permit of any key stores it in etcd if none is stored, with the total;
// from then on the stored ones are in force, and SetDefault, and SetLimit of Total, change them for
// all processes. Until a call for a permit has found them equal to this program's, each call
// compares them, and returns a *LimitMismatchError if they differ. A limit of 0 that one of
// those has stored, which pauses, differs from no other.
//
// It returns ErrInvalid if the session is nil, a limit is below 0 or above math.MaxInt32, or the
// name is not valid (see NewSemaphore); and ErrClosed if the session is closed.
func NewKeyedLimiter(s *Session, name string, limit int, opts *KeyedLimiterOptions) (*KeyedLimiter, error) {
	var o KeyedLimiterOptions
	if opts != nil {
		o = *opts
	}
	l, err := newKeyedLimiter(s, name, limit, o)
	if err != nil {
		return nil, fmt.Errorf("new keyed limiter %q: %w", name, err)
	}
	return l, nil
}

func newKeyedLimiter(s *Session, name string, limit int, o KeyedLimiterOptions) (*KeyedLimiter, error) {
	if err := usable(s, name); err != nil {
		return nil, err
	}
	if limit < 0 || limit > math.MaxInt32 {
		return nil, invalid("limit %d is not between 0 and %d", limit, math.MaxInt32)
	}
	if o.Total < 0 || o.Total > math.MaxInt32 {
		return nil, invalid("KeyedLimiterOptions.Total of %d is not between 0 and %d", o.Total, math.MaxInt32)
	}
	switch {
	case o.MaxTotalWaiters < 0:
		return nil, invalid("KeyedLimiterOptions.MaxTotalWaiters of %d is negative", o.MaxTotalWaiters)
	case o.MaxTotalWaiters > 0 && o.Total == 0:
		return nil, invalid("KeyedLimiterOptions.MaxTotalWaiters of %d without a Total", o.MaxTotalWaiters)
	case o.MaxKeys < 0 || o.MaxKeys > math.MaxInt32:
		return nil, invalid("KeyedLimiterOptions.MaxKeys of %d is not between 1 and %d", o.MaxKeys, math.MaxInt32)
	}
	core, own := engine.Of(s), engine.Own(s)
	l := &KeyedLimiter{sess: core, own: own, keys: core.Space().Limiter(name)}
	l.base = own.base(core, l.keys.Default, o.Total > 0)
	totals := own.queue(core, l.keys.Total(), observe.Limiter, name, 0, nil, nil)
	l.limits = &entry.Agreement{
		Session: core, Stored: l.base, Name: name, Level: queue.AtKey, Limit: int64(limit), Adopt: o.AdoptLimit, Adopted: &l.base.Adopted,
		Keys: entry.NewKeys(core, l.keys, cmp.Or(o.MaxKeys, entry.DefaultMaxKeys)), Totals: totals.Limit,
	}
	if o.Total > 0 {
		l.total = totals
		own.mu.Lock()
		if !l.total.isTotal() { // not by another value with the same name
			l.total.Totals(l.atKey)
		}
		own.mu.Unlock()
		l.limits.Total = &entry.Agreement{
			Session: core, Stored: totals.Limit, Name: name, Level: queue.AtTotal, Limit: int64(o.Total), Adopt: o.AdoptLimit, Adopted: &totals.Adopted, MaxWaiters: o.MaxTotalWaiters,
		}
	}
	return l, nil
}

// Key returns the semaphore of a key, which is any text of 1 to 255 bytes. Its name, in errors and
// in Status, is the limiter's with a '/' and the key. It does no I/O and keeps nothing: call it for
// each request. Every call of the Semaphore of another key returns ErrInvalid.
//
// SetLimit of the Semaphore gives the key a limit of its own, and ClearLimit takes that away. With a
// total, the token of a permit is that of its request in the total.
func (l *KeyedLimiter) Key(key string) *Semaphore {
	if err := keyspace.CheckID(key); err != nil {
		return semaphore{&sessionQueue{sess: l.sess, name: l.limits.Name, base: l.base, kind: observe.Limiter, invalid: invalid("the key %w", err)}, l.limits, nil, nil}.public()
	}
	q := l.own.known(queueKey{l.keys.KeyRange(key), l.total != nil}) // most calls are for few keys
	if q == nil {
		q = l.own.queue(l.sess, l.keys.Key(key), observe.Limiter, l.limits.Name+"/"+key, 0, l.base, l.total)
	}
	return semaphore{q, l.limits, l.base, nil}.public()
}

// atKey returns the queue of the key to which a request belongs, see queue.Totals.
func (l *KeyedLimiter) atKey(request string) *queue.Queue {
	key, ok := l.keys.ParseKey(request)
	if !ok {
		return nil
	}
	return l.Key(key).in().queue.Queue
}

// Total returns the semaphore of all keys together, for its Status, Watch, SetLimit and EvictToken.
// Its calls for a permit return ErrInvalid, since a permit has a key. Without a total, every call
// of it does.
func (l *KeyedLimiter) Total() *Semaphore {
	if l.total == nil {
		return semaphore{&sessionQueue{sess: l.sess, name: l.limits.Name, kind: observe.Limiter, invalid: invalid("the limiter has no total (KeyedLimiterOptions.Total)")}, l.limits, nil, nil}.public()
	}
	return semaphore{l.total, l.limits.Total, nil, nil}.public()
}

// SetDefault changes the default limit for all keys that have no limit of their own, in all
// processes, at once: see Semaphore.SetLimit. After it was lowered, Status of a key counts a request
// from before as a holder if it may hold a permit by the former default.
//
// It returns ErrNoLimit if no default is stored, unless the option CreateLimit is given, since the
// name may be misspelled; ErrInvalid if n is below 0 or above math.MaxInt32; ErrClosed, ctx's error,
// or one of etcd's; after the last three the default may be changed or not.
func (l *KeyedLimiter) SetDefault(ctx context.Context, n int, opts ...SetLimitOption) error {
	c, err := newLimitChange(n, opts)
	if err == nil {
		err = l.sess.Do(ctx, func(ctx context.Context) error { return l.base.Set(ctx, int64(n), c.create) })
	}
	if err != nil {
		return fmt.Errorf("set default limit of %q: %w", l.limits.Name, l.sess.Explain(err))
	}
	l.limits.Settle() // this program agrees with the limit that it sets
	return nil
}

// ClearLimit removes the limit that SetLimit has set for a key: the default is in force for it
// again, at once and for all processes. A small record stays for the key, so that no late
// copy of an earlier change takes effect. Without such a limit it does nothing. It returns ErrInvalid
// for a key that is empty or longer than 255 bytes, ErrClosed, ctx's error, or one of etcd's; after
// the last three the limit may be cleared or not.
func (l *KeyedLimiter) ClearLimit(ctx context.Context, key string) error {
	q := l.Key(key).in().queue
	if err := q.do(ctx, func(ctx context.Context) error { return q.Set(ctx, limit.To(limit.Inherit), true) }); err != nil {
		return q.failed("clear limit of", err)
	}
	return nil
}
