package mirror

import (
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Mirror is a copy of one queue in etcd. All callers and primitives of a session that use a
// queue share one, see Shared. It is safe for concurrent use.
type Mirror struct {
	keys  keyspace.Queue
	fixed int64 // the limit, if it is not stored

	mu       sync.Mutex
	queue    rank.Queue
	requests map[string]*Request // by key
	limits   Limits
	based    bool // a default counts where the queue has no limit of its own
	alone    bool // the watch brings deletions alone, and no stored limit: only the last list shows that
	revision int64
	foreign  map[string]int64 // mod revisions of the keys that are not requests
	listed   int64            // up to which token the last list was complete
	read     int64            // the revision of that list
	newer    int              // how many requests it has left out, which are newer
	missing  int64            // the last revision by which an event was lost: its key is that of a request which had ended before
	again    chan struct{}
	waiting  map[string]*Waiter
	unseen   map[string]*Waiter // those of them whose requests are newer than the view
	changed  chan struct{}      // closed and replaced at each change
}

// Request is one live request in etcd.
type Request struct {
	rank.Entry
	Slot  keyspace.Slot
	value *value
	ahead int // how many requests were before it when its event came
}

// value is the value of a request. It is for people, and rank does not depend on it: so it is
// decoded only on demand, and once.
type value struct {
	once   sync.Once
	stored []byte
	record record.Request
}

// NewRequest returns the request of a key whose name was parsed.
func NewRequest(slot keyspace.Slot, kv *mvccpb.KeyValue) Request {
	r := Request{
		Slot: slot, Entry: rank.Entry{Key: string(kv.Key), Create: kv.CreateRevision, Weight: slot.Weight, Try: slot.Try},
		value: &value{},
	}
	if len(kv.Value) <= record.MaxSize { // a longer one cannot be read, and is not kept
		r.value.stored = kv.Value
	}
	return r
}

// Record returns the value of the request, or a zero Record if it cannot be read.
func (r Request) Record() record.Request {
	r.value.once.Do(func() {
		r.value.record, _ = record.DecodeRequest(r.value.stored)
		r.value.stored = nil
	})
	return r.value.record
}

// New returns a mirror that has seen nothing yet. A fixed limit above 0 is used instead of a
// stored one.
func New(keys keyspace.Queue, fixed int64) *Mirror {
	m := &Mirror{keys: keys, fixed: fixed, requests: map[string]*Request{}, foreign: map[string]int64{}, waiting: map[string]*Waiter{}, unseen: map[string]*Waiter{}, changed: make(chan struct{}), again: make(chan struct{}, 1)}
	if fixed > 0 {
		m.queue.SetLimit(fixed, 0)
	}
	return m
}

// Reset implements Handler.
func (m *Mirror) Reset(kvs []*mvccpb.KeyValue, revision int64) { m.reset(kvs, revision, revision, 0) }

// reset is Reset by a list of the requests up to a token, which has left out a number of newer ones.
func (m *Mirror) reset(kvs []*mvccpb.KeyValue, revision, upTo int64, newer int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rewound := revision < m.revision
	// Which requests are admitted follows from the list and the limit's record. The former
	// state may be wrong: an event was lost, or etcd was restored.
	m.queue = rank.Queue{}
	if m.fixed > 0 {
		m.queue.SetLimit(m.fixed, 0)
	}
	m.requests, m.foreign = make(map[string]*Request, len(kvs)), map[string]int64{}
	var limit *mvccpb.KeyValue
	for _, kv := range kvs {
		if string(kv.Key) == m.keys.Limit {
			limit = kv
		} else if r, ok := m.parse(kv); ok {
			m.requests[r.Key] = r
		} else {
			m.foreign[string(kv.Key)] = kv.ModRevision
		}
	}
	m.setLimit(limit)
	entries := make([]rank.Entry, 0, len(m.requests))
	for _, r := range m.requests {
		entries = append(entries, r.Entry)
	}
	m.queue.Reset(entries)
	m.queue.Admit()
	m.listed, m.read, m.newer = min(revision, upTo), revision, newer
	m.settle(revision, nil)
	for _, w := range m.waiting {
		if _, _, ok := m.queue.Position(w.key, w.create); rewound && !ok {
			m.finish(w, Gone)
		}
	}
}

// ForeignKey is a key in the range that is not a request, with its mod revision.
type ForeignKey struct {
	Key string
	Mod int64
}

// ForeignKeys returns the keys in the range that are not requests. listed is false if the range has
// not been listed yet.
func (m *Mirror) ForeignKeys() (foreign []ForeignKey, listed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, mod := range m.foreign {
		foreign = append(foreign, ForeignKey{key, mod})
	}
	return foreign, m.listed > 0
}

// Again returns a channel that has a value when the mirror wants the range listed again.
func (m *Mirror) Again() <-chan struct{} { return m.again }

// Apply implements Handler.
func (m *Mirror) Apply(events []*clientv3.Event, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	touched, all := make([]string, 0, len(events)+1), false
	for _, ev := range events {
		key := string(ev.Kv.Key)
		touched = append(touched, key)
		if key == m.keys.Limit {
			all = true
			if ev.Type == clientv3.EventTypeDelete {
				m.setLimit(nil)
			} else {
				m.setLimit(ev.Kv)
			}
			continue
		}
		old, known := m.requests[key]
		if ev.Type == clientv3.EventTypeDelete {
			delete(m.foreign, key)
			if known {
				delete(m.requests, key)
				m.queue.Delete(key, old.Create)
			} else {
				m.newer = max(0, m.newer-1)
			}
			continue
		}
		// A key that is written again keeps its place: rank depends on the create
		// revision. But without a lease it has no owner.
		r, ok := m.parse(ev.Kv)
		switch {
		case known && (!ok || r.Create != old.Create):
			m.missing = revision
			delete(m.requests, key)
			m.queue.Delete(key, old.Create)
		case known:
			old.value = r.value
			continue
		}
		if !ok {
			m.foreign[key] = ev.Kv.ModRevision
			continue
		}
		delete(m.foreign, key)
		m.requests[key] = r
		m.queue.Insert(r.Entry)
		r.ahead, _, _ = m.queue.Position(key, r.Create)
	}
	for _, e := range m.queue.Admit() {
		touched = append(touched, e.Key)
	}
	if all {
		touched = nil
	}
	m.settle(revision, touched)
}

// parse reads a request. A key is foreign, and blocks no request, if it is not one of ours, has
// no lease and so would never expire, or weighs more than a limit that never changes.
func (m *Mirror) parse(kv *mvccpb.KeyValue) (*Request, bool) {
	slot, ok := m.keys.ParseSlot(string(kv.Key))
	if !ok || kv.Lease == 0 {
		return nil, false
	}
	if m.fixed > 0 && slot.Weight > m.fixed {
		return nil, false
	}
	r := NewRequest(slot, kv)
	return &r, true
}

// setLimit takes over the queue's own limit. An unreadable one admits nothing.
func (m *Mirror) setLimit(kv *mvccpb.KeyValue) {
	if m.fixed == 0 {
		m.limits.Own = ReadLimitRecord(kv)
		m.limited()
	}
}

// SetBase takes over the default limit, unless a later one is known; its Rev is 0 as long as none
// is. The default may be newer or older than the rest of the view. So a view with a default only
// suggests: what it shows as admitted has to be confirmed, see Waiter.Suggested.
func (m *Mirror) SetBase(base LimitRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.based = true
	if base.Rev > m.limits.Base.Rev {
		m.limits.Base = base
		m.limited()
		m.settle(m.revision, nil)
	}
}

// suggests reports whether the limit may be newer or older than the rest of the view.
func (m *Mirror) suggests() bool { return m.based || m.alone && m.revision > m.read }

// Alone reports whether the watch brings deletions alone, although the limit is stored.
func (m *Mirror) Alone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alone
}

// limited has the queue admit by the limit that counts now.
func (m *Mirror) limited() {
	l := m.limits.InForce()
	if l.Rev == 0 || l.Damaged {
		m.queue.ForgetLimit()
		return
	}
	if m.based { // what was admitted by a default that was out of date is not admitted
		m.queue.Restart(l.Limit.Limit, m.limits.Own.Through)
		return
	}
	m.queue.SetLimit(l.Limit.Limit, m.limits.Own.Through)
}

// ReadLimit reads a stored limit. One whose Through is a later revision than its own is invalid:
// no request is admitted before it exists.
func ReadLimit(kv *mvccpb.KeyValue) (record.Limit, bool) {
	l, ok := record.DecodeLimit(kv.Value)
	return l, ok && l.Through < kv.ModRevision
}

// settle ends a change. It delivers the outcome of those of the touched requests that wait here,
// or of all if none are named, and of those that should have been seen by now.
func (m *Mirror) settle(revision int64, touched []string) {
	m.revision = revision
	if touched == nil {
		for _, w := range m.waiting {
			m.deliver(w)
		}
	}
	for key, w := range m.unseen {
		if w.create <= revision {
			delete(m.unseen, key)
			touched = append(touched, key)
		}
	}
	for _, key := range touched {
		if w, ok := m.waiting[key]; ok {
			m.deliver(w)
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Mirror) deliver(w *Waiter) {
	if outcome, done := m.outcome(w); done {
		m.finish(w, outcome)
	}
}

func (m *Mirror) finish(w *Waiter, o Outcome) {
	delete(m.waiting, w.key)
	delete(m.unseen, w.key)
	if w.suggested = m.suggests(); w.suggested {
		w.upTo, w.limits = m.queue.UpTo(w.key, w.create), m.limits
	}
	w.outcome <- o
}

// Read returns the state that a list shows, with the default limit as of the same revision.
func Read(keys keyspace.Queue, fixed int64, base LimitRecord, kvs []*mvccpb.KeyValue, revision int64) View {
	m := New(keys, fixed)
	m.limits.Base = base
	m.Reset(kvs, revision)
	v, _ := m.View()
	return v
}
