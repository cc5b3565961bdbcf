package exporter

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// kinds are the kinds of queue, as labels, with their limit if that is not stored.
var kinds = map[keyspace.Kind]struct {
	label string
	fixed int64
}{
	keyspace.Semaphore: {"semaphore", 0},
	keyspace.Mutex:     {"mutex", 1},
	keyspace.Election:  {"election", 1},
	keyspace.Rate:      {"rate", 0},
}

// line is one queue.
type line struct {
	keys    func() keyspace.Queue
	fixed   int64
	limiter *limiter // of which it is the total or a key, or nil
	isTotal bool
	limit   *mvccpb.KeyValue // the stored limit, or nil
	entries map[string]*entry
	from    int64 // the state before its first change since settle was confirmed then
	now     summary
}

// entry is one request, or a foreign key.
type entry struct {
	create, mod, lease int64
	at, maxHold        int64 // as the request says
	since, seen        int64 // the earliest time of its grant, and when it was first seen to be granted; 0: it waits
}

// summary is what a line publishes. It changes only with the keys.
type summary struct {
	limit   int64
	known   bool // whether a limit is stored and readable
	full    bool // whether a request of weight 1 would wait
	used    int64
	waiting int
	weight  int64 // of those that wait
	foreign int

	oldestWait int64 // when the oldest waiting request was made; 0: none waits
	oldestHold int64 // the earliest time of the oldest grant; 0: none holds
	maxHold    int64 // of that request, or 0
	ends       []int64
}

func (s *state) changeQueue(kind keyspace.Kind, key string, kv *mvccpb.KeyValue, now int64) {
	name, ok := s.space.ParseQueue(kind, key)
	if !ok {
		return
	}
	id := queueID{kind, name}
	l := s.queues[id]
	if l == nil {
		keys := s.space.Queue(kind, name)
		l = &line{keys: func() keyspace.Queue { return keys }, fixed: kinds[kind].fixed}
		s.queues[id] = l
	}
	s.touch(l)
	if l.change(key, kv, now); l.empty() {
		delete(s.queues, id)
		delete(s.dirty, l)
	}
}

// touch marks a queue that changes.
func (s *state) touch(l *line) {
	if !s.dirty[l] {
		s.dirty[l] = true
		l.from = s.asOf
	}
}

func (l *line) empty() bool { return l.limit == nil && len(l.entries) == 0 }

// change adds, replaces or removes a key of the queue.
func (l *line) change(key string, kv *mvccpb.KeyValue, now int64) {
	switch keys := l.keys(); {
	case key == keys.Limit && l.fixed == 0:
		l.limit = kv
	case kv == nil:
		delete(l.entries, key)
	default:
		if l.entries == nil {
			l.entries = map[string]*entry{}
		}
		old := l.entries[key]
		if old == nil || old.create != kv.CreateRevision {
			old = &entry{at: now}
		}
		fresh := &entry{create: kv.CreateRevision, mod: kv.ModRevision, lease: kv.Lease, at: old.at, since: old.since, seen: old.seen}
		if r, ok := record.DecodeRequest(kv.Value); ok && r.AtMS > 0 {
			fresh.at, fresh.maxHold = r.AtMS, r.MaxHold().Milliseconds()
		}
		l.entries[key] = fresh
	}
}

// inherit takes over since when the requests of a queue hold.
func (l *line) inherit(from *line) {
	if l == nil || from == nil {
		return
	}
	for key, now := range l.entries {
		if old := from.entries[key]; old != nil && old.create == now.create {
			now.since, now.seen = old.since, old.seen
		}
	}
}

// settle computes which requests hold, in the queues that have changed.
func (s *state) settle(now int64) {
	for l := range s.dirty {
		l.settle(s.revision, now)
	}
	clear(s.dirty)
}

func (l *line) settle(revision, now int64) {
	kvs := make([]*mvccpb.KeyValue, 0, len(l.entries)+1)
	for key, e := range l.entries {
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(key), CreateRevision: e.create, ModRevision: e.mod, Lease: e.lease})
	}
	if l.limit != nil {
		kvs = append(kvs, l.limit)
	}
	v := mirror.Read(l.keys(), l.fixed, l.base(), kvs, revision)
	l.now = summary{
		limit: v.Limit, known: v.Known, used: v.Used, waiting: len(v.Waiters), foreign: v.Foreign,
		full: !v.Known || len(v.Waiters) > 0 || v.Used >= v.Limit,
	}
	for _, r := range v.Waiters {
		l.now.weight += r.Weight
		if at := l.entries[r.Key].at; l.now.oldestWait == 0 || at < l.now.oldestWait {
			l.now.oldestWait = at
		}
	}
	for _, r := range v.Holders {
		e := l.entries[r.Key]
		if e.seen == 0 {
			e.since, e.seen = min(max(e.at, l.from), now), now
		}
		if l.now.oldestHold == 0 || e.since < l.now.oldestHold {
			l.now.oldestHold, l.now.maxHold = e.since, e.maxHold
		}
		if e.maxHold > 0 {
			l.now.ends = append(l.now.ends, e.seen+e.maxHold)
		}
	}
}

// base returns the default limit of the queue.
func (l *line) base() mirror.Stored {
	if l.limiter == nil || l.isTotal {
		return mirror.Stored{}
	}
	return l.limiter.base
}

// overdue returns how many requests hold for longer than their MaxHold.
func (s summary) overdue(now int64) (n int) {
	for _, end := range s.ends {
		if end < now {
			n++
		}
	}
	return n
}
