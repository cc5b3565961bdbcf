// Package crowd is how the waiting requests of one session wait in one queue
// (docs/design/0021-far-waiters.md): they follow the queue, or they sleep while they are far from their
// admission. It decides no admission and knows nothing of permits: a request is admitted by what a view of
// the queue shows, or a read.
package crowd

import (
	"context"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// Session is what the waiting requests use of their session.
type Session interface {
	Context() context.Context         // of its background work
	Background(func()) (started bool) // not once the session has ended
	KV() clientv3.KV
	Source() *mirror.Source
	See(revision int64) // counts a revision as met
}

// Queue is a queue as its waiting requests know it.
type Queue struct {
	Session     Session
	Keys        keyspace.Queue
	Limit       limit.Setting
	View        *mirror.Shared // of the whole queue
	Horizon     rank.Horizon
	ReportEvery time.Duration

	// OfKey is set for the queue of a limiter's key. Few wait there, so none is far; and another watch brings
	// the default limit.
	OfKey bool
	// Joins is set if a request that is admitted here then joins another queue, by a Txn that confirms that.
	Joins bool
}

// Request is one request in the queue.
type Request struct {
	Key           string
	Token, Weight int64
	Try           bool
	Found         mirror.Found // by its own Txn
	Caller
}

// Caller is the call that has made a request.
type Caller interface {
	// Noticed returns what is closed when others have left a notice for the request.
	Noticed() <-chan struct{}
	// Restore stores the limit, which was deleted by hand.
	Restore(context.Context) error
	// Follows reports, until stop is called, why the request waits, by what a view shows.
	Follows(context.Context, *mirror.Mirror) (stop func())
	// Sleeps reports once why the request waits, which sleeps.
	Sleeps(context.Context)
}

// Crowd is the waiting requests of one session in one queue. It is safe for concurrent use.
type Crowd struct {
	Queue
	Front *mirror.Shared // what the requests of a crowd follow while they are near

	waiters waiters
	foreign atomic.Int64 // how many foreign keys a far request reads beside the requests before it
	own     ownWatches
	samples samples

	bySample atomic.Bool  // the far requests sleep by a sample
	saved    atomic.Int64 // by how much the reserve of the horizon is smaller: see rank.Horizon.Learn
}

// New returns a Crowd without a request.
func New(q Queue) *Crowd {
	c := &Crowd{Queue: q, waiters: waiters{changed: make(chan struct{}), recheck: make(chan struct{}, 1)}}
	c.Front = mirror.NewResting(q.Keys, q.Limit.Fixed(), c.runFront)
	c.own.changed, c.samples.some = make(chan struct{}, 1), make(chan struct{}, 1)
	return c
}

// runFront keeps a mirror of the front part of the queue up to date until it is stopped.
func (c *Crowd) runFront(m *mirror.Mirror) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.Session.Context())
	alone := c.deletionsAlone(1)
	c.Session.Background(func() { c.Session.Source().Front(ctx, m, c.waiters.newest, alone) })
	return cancel
}

// deletionsAlone reports whether the session follows deletions alone in the front of a queue of so many
// times as many requests as its newest one has found.
func (c *Crowd) deletionsAlone(times int) bool {
	_, last := c.waiters.ends()
	return last != nil && last.Found.Known && c.Horizon.Crowded(limit.SeenN(c.Limit), times*(last.Found.Ahead+1), c.waiters.count())
}

// Mode returns how the requests wait.
func (c *Crowd) Mode() Mode {
	mode, _ := c.waiters.now()
	return mode
}

// First returns the waiting request with the lowest token.
func (c *Crowd) First() (_ Request, ok bool) {
	first, _ := c.waiters.ends()
	if first == nil {
		return Request{}, false
	}
	return first.Request, true
}

// Comes counts a request that is about to be written and may wait, until came is called.
func (c *Crowd) Comes() (came func()) {
	counted := c.waiters.comes()
	return func() {
		counted()
		if c.waiters.settles(c.crowded) {
			c.monitored()
		}
	}
}

// Enter adds a request to those that wait, until leave is called.
func (c *Crowd) Enter(r Request) (s *Waiter, leave func()) {
	s = &Waiter{Request: r, woken: make(chan struct{}, 1)}
	s.ahead, s.from, s.placed = int64(r.Found.Ahead), c.samples.left.Load(), r.Found.Known && c.own.sample() != nil
	if c.waiters.enter(s, c.crowded, c.far) {
		c.monitored()
	}
	return s, func() {
		if c.waiters.leave(s, c.crowded) {
			c.monitored()
		}
	}
}

// monitored starts a monitor.
func (c *Crowd) monitored() {
	c.View.Rest()
	m := monitor{Crowd: c, stop: func() {}}
	if !c.Session.Background(m.run) {
		c.waiters.setMode(Whole)
	}
}

// far reports whether a request is far, as far as the session knows.
func (c *Crowd) far(s *Waiter) bool {
	return c.isBehind(s, func(limit int64) bool { return c.beyond(int64(s.Found.Ahead), limit) })
}

// crowded reports whether a request, the first of so many of the session, is far, or near in a crowd.
func (c *Crowd) crowded(s *Waiter, count int) bool {
	return c.isBehind(s, func(limit int64) bool {
		return int64(s.Found.Ahead) >= c.horizon().Distance(limit) || c.Horizon.Crowded(limit, s.Found.Ahead+1, count)
	})
}

// beyond reports whether a request with so many before it sleeps.
func (c *Crowd) beyond(ahead, limit int64) bool {
	h := c.horizon()
	if !c.bySample.Load() {
		return ahead >= h.Distance(limit)
	}
	_, far := h.Deletions(ahead, limit)
	return far
}

// stays reports whether a request that follows the queue continues to. To sleep by a sample costs no list.
func (c *Crowd) stays(ahead int, limit int64) bool {
	if c.bySample.Load() {
		return !c.beyond(int64(ahead), limit)
	}
	return c.horizon().Stays(ahead, limit)
}

// isBehind reports whether a request may be far and is behind many others: as found, what its Txn has
// counted, shows. If the session follows it already, it is so only if it is too far to continue.
func (c *Crowd) isBehind(s *Waiter, found func(limit int64) bool) bool {
	if c.OfKey || s.Try {
		return false
	}
	limit := limit.SeenN(c.Limit)
	if ahead, ok := c.View.Ahead(s.Key, s.Token); ok {
		return !c.stays(ahead, limit)
	}
	return s.Found.Known && found(limit)
}

// sampled reports whether requests that were found to have so many before them sleep by a sample, if they are those of
// a session that has so many.
func (c *Crowd) sampled(found mirror.Found, own int) bool {
	return c.Horizon.Every > 0 && found.Known && !found.Heavy && c.Horizon.Crowded(limit.SeenN(c.Limit), found.Ahead+1, own)
}

// horizon returns the horizon of the requests, with what the session has learned.
func (c *Crowd) horizon() rank.Horizon {
	n := limit.SeenN(c.Limit)
	return c.unlearned(n).Saving(c.saved.Load(), n)
}

func (c *Crowd) unlearned(limit int64) rank.Horizon {
	if c.bySample.Load() {
		return c.Horizon.Sampling(limit)
	}
	return c.Horizon
}

// learn takes over how many requests were before one that has just begun to follow, after a sleep.
func (c *Crowd) learn(ahead int) {
	n := limit.SeenN(c.Limit)
	c.saved.Store(c.unlearned(n).Learn(c.saved.Load(), int64(ahead)-n, n))
}
