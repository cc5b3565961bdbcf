package exporter

import (
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// state is what the metrics need of a namespace, as of one revision. It is not safe for concurrent
// use. Times are in milliseconds.
type state struct {
	space    keyspace.Space
	ranges   ranges
	revision int64
	asOf     int64 // the time of the answer that has confirmed it last, by the exporter's clock; 0: none has

	keys     map[string]int64 // the lease of each key
	leases   map[int64]int    // the number of keys of each lease
	sessions map[int64]bool   // leases of the live ones
	clocks   clocks

	queues   map[queueID]*line
	limiters map[string]*limiter
	jobs     map[string]*job
	stores   map[string]*store
	dirty    map[*line]bool // the queues that have changed since settle
}

// queueID identifies a queue that is not one of a limiter.
type queueID struct {
	kind keyspace.Kind
	name string
}

// ranges are the parts of a namespace.
type ranges struct {
	kinds                  map[keyspace.Kind]string
	limiters, jobs, stores string
}

func newState(space keyspace.Space) *state {
	s := &state{
		space: space, keys: map[string]int64{}, leases: map[int64]int{}, sessions: map[int64]bool{}, clocks: clocks{},
		queues: map[queueID]*line{}, limiters: map[string]*limiter{}, jobs: map[string]*job{}, stores: map[string]*store{}, dirty: map[*line]bool{},
		ranges: ranges{kinds: map[keyspace.Kind]string{}, limiters: space.Limiters(), jobs: space.Jobs(), stores: space.Stores()},
	}
	for kind := range kinds {
		s.ranges.kinds[kind] = space.Queues(kind)
	}
	return s
}

// put adds a key or replaces its value, at a time.
func (s *state) put(kv *mvccpb.KeyValue, now int64) {
	key := string(kv.Key)
	old, known := s.keys[key]
	if known && old != kv.Lease {
		s.unlease(old)
	}
	if kv.Lease != 0 && (!known || old != kv.Lease) {
		s.leases[kv.Lease]++
	}
	s.keys[key] = kv.Lease
	if kv.Lease != 0 && key == s.space.Session(kv.Lease).Alive() {
		s.sessions[kv.Lease] = true
		return
	}
	s.change(key, kv, known, now)
}

// remove removes a key.
func (s *state) remove(key string) {
	lease, known := s.keys[key]
	if !known {
		return
	}
	delete(s.keys, key)
	s.unlease(lease)
	if lease != 0 && key == s.space.Session(lease).Alive() {
		delete(s.sessions, lease)
		delete(s.clocks, lease)
		return
	}
	s.change(key, nil, true, 0)
}

func (s *state) unlease(lease int64) {
	if s.leases[lease]--; s.leases[lease] <= 0 {
		delete(s.leases, lease)
	}
}

// change passes a change of a key on to its queue, job or store; nil removes the key. known says that
// the key existed before.
func (s *state) change(key string, kv *mvccpb.KeyValue, known bool, now int64) {
	switch {
	case strings.HasPrefix(key, s.ranges.limiters):
		s.changeLimiter(key, kv, now)
	case strings.HasPrefix(key, s.ranges.jobs):
		s.changeJob(key, kv, known)
	case strings.HasPrefix(key, s.ranges.stores):
		s.changeStore(key, kv, known)
	default:
		for kind, in := range s.ranges.kinds {
			if strings.HasPrefix(key, in) {
				s.changeQueue(kind, key, kv, now)
			}
		}
	}
}

// inherit takes over what an earlier state knows and a list does not show.
func (s *state) inherit(from *state) {
	for id, l := range s.queues {
		l.inherit(from.queues[id])
	}
	for name, l := range s.limiters {
		old := from.limiters[name]
		if old == nil {
			old = &limiter{}
		}
		l.total.inherit(old.total)
		for key, of := range l.keys {
			of.inherit(old.keys[key])
		}
	}
	for l := range s.dirty {
		l.from = from.asOf
	}
	for name, j := range s.jobs {
		if old := from.jobs[name]; old != nil {
			j.success = max(j.success, old.success)
		}
	}
	for lease := range s.sessions {
		if m, ok := from.clocks[lease]; ok {
			s.clocks[lease] = m
		}
	}
}
