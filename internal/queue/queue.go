// Package queue is one queue in etcd as one session uses it: how its requests join it, wait, are admitted and
// end, and what the session reads of it. Where a call is refused, it returns a value; package concurrency makes
// the error of it that users see.
package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/crowd"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// Options are what a Queue is made of.
type Options struct {
	Session     *engine.Session
	Keys        keyspace.Queue
	Name        string // for the log
	Fixed       int64  // the limit, or 0 if it is stored
	Base        *Base  // the default of a stored limit, or nil
	Total       *Queue // which a request joins when it is admitted here, or nil
	Alone       bool   // a Txn that writes a request is sent alone
	Horizon     rank.Horizon
	ReportEvery time.Duration
	Changed     func(from, to int64) // see limit.Store
}

// Queue is one queue in etcd as one session uses it. All callers of the session share it and its mirror. It is
// safe for concurrent use.
type Queue struct {
	Reader
	Crowd   *crowd.Crowd  // of the requests that wait
	Adopted limit.Adopted // the limit, or what it divides
	Sharing Sharing       // with a total, that of the total counts
	Leases  Leases        // of holders

	sess     *engine.Session
	base     *Base                            // the default limit, or nil
	pair     *pair                            // with the total, or nil
	atKey    func(request string) (at *Queue) // of a total: see Totals
	numbered string                           // the range of the queue that numbers the requests of this one
	subjects []string                         // the queues to which the Txn of a request belongs; none if each is sent alone
	tries    tries

	contention contention
	recount    recount
}

// New returns a queue. It does no I/O.
func New(o Options) *Queue {
	sess := o.Session
	q := &Queue{
		Reader: Reader{Name: o.Name, KV: sess.KV(), Keys: o.Keys, See: sess.See, Log: sess.Log()},
		sess:   sess, base: o.Base, numbered: o.Keys.Range,
	}
	if o.Base != nil {
		q.Default = o.Base.Key
	}
	q.Sharing.queue, q.Leases.sess = q, sess
	q.View, q.Limit = mirror.NewShared(o.Keys, o.Fixed, q.run), o.limit()
	q.Crowd = crowd.New(crowd.Queue{
		Session: sess, Keys: o.Keys, Limit: q.Limit, View: q.View, Horizon: o.Horizon, ReportEvery: o.ReportEvery,
		OfKey: o.Base != nil, Joins: o.Total != nil,
	})
	if !o.Alone {
		q.subjects = append(q.subjects, o.Keys.Range)
	}
	if o.Total != nil {
		q.pair, q.numbered, q.subjects = &pair{key: q, total: o.Total}, o.Total.Keys.Range, append(q.subjects, o.Total.Keys.Range)
	}
	return q
}

// author returns the author of what a session stores.
func author(s *engine.Session) limit.Author {
	return func(ctx context.Context) string { return engine.Author(ctx, s) }
}

// limit returns the limit, of the kind that the queue has.
func (o Options) limit() limit.Setting {
	if o.Fixed > 0 {
		return limit.NewFixed(o.Fixed)
	}
	l := &limit.Store{KV: o.Session.KV(), Keys: o.Keys, By: author(o.Session), See: o.Session.See, Changed: o.Changed}
	if o.Base != nil {
		l.Base = &o.Base.Base
	}
	return l
}

// Newest returns the newest limit that the session has seen, or 0. Whatever way its requests wait, one of these
// follows it.
func (q *Queue) Newest() int64 {
	n, rev := limit.SeenN(q.Limit), int64(0)
	if l := q.Limit.Seen(); l != nil {
		rev = l.Revs.Own
	}
	for _, m := range []*mirror.Shared{q.View, q.Crowd.Front} {
		if l := m.Limit(); l.Rev > rev {
			n, rev = l.Limit.Limit, l.Rev
		}
	}
	return n
}

// Totals makes the queue that of a limiter's total. atKey returns the queue of the key to which a request
// belongs, by the key of that request in etcd; nil if that is none of the limiter's.
func (q *Queue) Totals(atKey func(request string) (at *Queue)) { q.atKey = atKey }

// Level is one of the two levels at which a limiter limits, or empty for any other queue.
type Level string

// The levels of a limiter.
const (
	AtKey   Level = "key"
	AtTotal Level = "total"
)

// Level returns which queue of a limiter this is, if it is one.
func (q *Queue) Level() Level {
	switch {
	case q.atKey != nil:
		return AtTotal
	case q.base != nil:
		return AtKey
	default:
		return ""
	}
}

// is reports whether two are the same queue in etcd. A queue of a key to which nothing refers any more may
// have been replaced by another one.
func (q *Queue) is(other *Queue) bool { return q.Keys.Range == other.Keys.Range }

// last returns the queue in which the permits are held.
func (q *Queue) last() *Queue {
	if q.pair != nil {
		return q.pair.total
	}
	return q
}

// CountPermits counts the weight of a permit that was granted, or less that of one that was released.
func (q *Queue) CountPermits(weight int64) { q.last().Sharing.permits.Add(weight) }

// run keeps a mirror of the queue up to date until it is stopped. It lives as long as
// its view, so that a caller that comes soon finds both.
func (q *Queue) run(m *mirror.Mirror) (stop context.CancelFunc) {
	source, keys := q.sess.Source(), q.Keys.Range
	ctx, cancel := context.WithCancel(q.sess.Context())
	detach := func() {}
	if q.base != nil {
		detach = q.base.attach(m)
	}
	q.sess.Background(func() { source.Follow(ctx, keys, 0, m) })
	return func() { cancel(); detach() }
}

// Reset has the queue forget what it has seen, since etcd's history was taken back; calls that wait or watch go
// over to a new mirror.
func (q *Queue) Reset() {
	q.Forget()
	q.pair.forget()
	q.View.Replace()
	q.Crowd.Front.Replace()
}

var (
	// ErrWaited is the cause of the end of a ctx that the Wait of its call has ended.
	ErrWaited = errors.New("waited long enough")
	// ErrAnew ends a request that is gone. Its call queues anew.
	ErrAnew = errors.New("the request is gone; it queues anew")
)

// readInTurn is Read in the turn of a call that began then.
func (q *Queue) readInTurn(ctx context.Context, begun time.Time) (mirror.View, error) {
	leave, err := q.sess.Sending.Enter(ctx, begun)
	if err != nil {
		return mirror.View{}, err
	}
	defer leave()
	return q.Read(ctx)
}

// Turn waits for the turn of a call that began then. If its Wait ends before, it returns Unknown: see also Call.Ended.
func (q *Queue) Turn(ctx context.Context, turns *engine.Turns, begun time.Time) (leave func(), err error) {
	leave, err = turns.Enter(ctx, begun)
	if err != nil && context.Cause(ctx) == ErrWaited {
		err = q.unseen() // Call.Ended has what was shown
		if o, away := q.sess.Unavailable(); away {
			err = &Outage{o}
		}
	}
	return leave, err
}
