package concurrency

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/ratelimit"
	"github.com/etcdkit/etcdkit/observe"
)

// shared is what the primitives of a session share besides its lease.
type shared struct {
	reportEvery time.Duration
	horizon     func(fixed bool) rank.Horizon

	mu     sync.Mutex
	queues map[queueKey]weak.Pointer[sessionQueue]
	most   int                          // how many there have been since the map was made
	bases  map[queueKey]*base           // by the key of the default limit
	rates  map[string]*ratelimit.Shares // by the range of the queue of shares
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
func (s *shared) known(as queueKey) *sessionQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[as].Value()
}

// queue returns the queue with those keys.
func (s *shared) queue(core *engine.Session, keys keyspace.Queue, kind observe.Kind, name string, fixed int64, b *base, total *sessionQueue) *sessionQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	as := queueKey{keys.Range, total != nil}
	if q := s.queues[as].Value(); q != nil {
		return q
	}
	q := &sessionQueue{sess: core, name: name, reportEvery: s.reportEvery, base: b, kind: kind, total: total}
	o := queue.Options{
		Session: core, Keys: keys, Name: name, Fixed: fixed, Horizon: s.horizon(fixed > 0), ReportEvery: s.reportEvery,
		Alone: kind == observe.Election, // a request to step down names a token only
	}
	if core.Hooks().On() {
		o.Changed = q.limitChanged
	}
	if b != nil {
		o.Base = b.Base
	}
	if total != nil {
		o.Total = total.Queue
	}
	q.Queue = queue.New(o)
	s.queues[as] = weak.Make(q)
	s.most = max(s.most, len(s.queues))
	runtime.AddCleanup(q, s.forget, as)
	return q
}

// base returns the default limit with that key. There are as many as limiters, and each is small, so
// they are kept.
func (s *shared) base(core *engine.Session, key string, total bool) *base {
	s.mu.Lock()
	defer s.mu.Unlock()
	as := queueKey{key, total}
	b := s.bases[as]
	if b == nil {
		b = &base{Base: queue.NewBase(core, key, total), sess: core}
		s.bases[as] = b
	}
	return b
}

// forget is called when nothing refers to a queue any more: a session of a process that uses
// ever new names stays small.
func (s *shared) forget(as queueKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[as].Value() == nil {
		delete(s.queues, as)
	}
	if s.most > fewQueues && len(s.queues) < s.most/4 { // a map keeps the size that it has had, and so does its clone
		s.queues, s.most = maps.Collect(maps.All(s.queues)), len(s.queues)
	}
}

// fewQueues is up to how many queues it does not matter how large their map is.
const fewQueues = 1000

// rewound has all queues forget what they have seen: etcd's history was taken back.
func (s *shared) rewound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bases { // first: the new views of the queues begin with them
		b.Rewound()
	}
	for _, p := range s.queues {
		if q := p.Value(); q != nil {
			q.Reset()
		}
	}
}
