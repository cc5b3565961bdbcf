package concurrency

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// shared is what the primitives of a session share besides its lease.
type shared struct {
	trace       *Trace
	reportEvery time.Duration

	mu    sync.Mutex
	gates map[string]weak.Pointer[gate] // by the range of the queue
}

// gate returns the session's gate of that kind and name.
func (s *Session) gate(kind keyspace.Kind, name string, fixed int64) (*gate, error) {
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
	if g := own.gates[keys.Range].Value(); g != nil {
		return g, nil
	}
	g := &gate{sess: core, own: own, name: name, fixed: fixed, keys: keys}
	g.view = mirror.NewShared(keys, fixed, g.run)
	g.limit = limit.Store{KV: core.KV(), Keys: keys, By: core.Holder(), See: core.See}
	own.gates[keys.Range] = weak.Make(g)
	runtime.AddCleanup(g, own.forget, keys.Range)
	return g, nil
}

// forget is called when nothing refers to a gate any more: a session of a process that uses
// ever new names stays small.
func (s *shared) forget(keys string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[keys].Value() == nil {
		delete(s.gates, keys)
	}
}

// rewound has all gates forget what they have seen: etcd's history was taken back.
func (s *shared) rewound() {
	s.mu.Lock()
	var gates []*gate
	for _, p := range s.gates {
		if g := p.Value(); g != nil {
			gates = append(gates, g)
		}
	}
	s.mu.Unlock()
	for _, g := range gates {
		g.reset()
	}
}
