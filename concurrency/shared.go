package concurrency

import (
	"runtime"
	"sync"
	"time"
	"weak"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// shared is what the primitives of a session share besides its lease.
type shared struct {
	trace       *Trace
	reportEvery time.Duration

	mu     sync.Mutex
	queues map[string]weak.Pointer[sessionQueue] // by the range of the queue
}

// queue returns the session's queue of that kind and name.
func (s *Session) queue(kind keyspace.Kind, name string, fixed int64) (*sessionQueue, error) {
	if err := keyspace.CheckName(name); err != nil {
		return nil, invalid("the name %w", err)
	}
	if s == nil || engine.Of(s) == nil {
		return nil, invalid("the session is nil")
	}
	core, own := engine.Of(s), engine.Own(s)
	if core.Accepting().Err() != nil {
		return nil, ErrClosed
	}
	keys := core.Space().Queue(kind, name)
	own.mu.Lock()
	defer own.mu.Unlock()
	if q := own.queues[keys.Range].Value(); q != nil {
		return q, nil
	}
	q := &sessionQueue{sess: core, own: own, name: name, fixed: fixed, keys: keys, leases: map[clientv3.LeaseID]leaseSeen{}}
	q.view = mirror.NewShared(keys, fixed, q.run)
	q.limit = limit.Store{KV: core.KV(), Keys: keys, By: core.Owner(), See: core.See}
	own.queues[keys.Range] = weak.Make(q)
	runtime.AddCleanup(q, own.forget, keys.Range)
	return q, nil
}

// forget is called when nothing refers to a queue any more: a session of a process that uses
// ever new names stays small.
func (s *shared) forget(keys string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[keys].Value() == nil {
		delete(s.queues, keys)
	}
}

// rewound has all queues forget what they have seen: etcd's history was taken back.
func (s *shared) rewound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.queues {
		if q := p.Value(); q != nil {
			q.reset()
		}
	}
}
