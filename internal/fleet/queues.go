package fleet

import (
	"math"
	"slices"

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

// Queue is one queue.
type Queue struct {
	keys    func() keyspace.Queue
	fixed   int64
	limiter *Limiter // of which it is the total or a key, or nil
	isTotal bool
	limit   *mvccpb.KeyValue // the stored limit, or nil
	perSec  float64          // of the stored limit, which each scrape asks for
	admits  bool             // it has a stored limit of its own, above 0
	entries map[string]*entry
	from    int64 // the state before its first change since settle was confirmed then
	details bool
	order   []ranked // holders, then waiters, as of settle; with Options.Details
	holders int      // of them
	Now     Summary
}

// ranked is a request in the order of its queue.
type ranked struct {
	*entry
	weight int64
}

// entry is one request, or a foreign key.
type entry struct {
	create, mod, lease int64
	at, maxHold        int64   // as the request says
	value              *[]byte // with Options.Details, unless it is too long to be read
	since, seen        int64   // the earliest time of its grant, 0: it waits; and when it was first known to be granted, 0: it is not known
}

// gone is entry.seen of a request that has ended, in the order as of settle. A field of its own would take 16 bytes.
const gone = -1

// Summary is what is known of a queue as a whole. It changes only with the keys.
type Summary struct {
	Limit   int64
	Known   bool // whether a limit is stored and readable
	Full    bool // whether a request of weight 1 would wait; without a known limit none does
	Used    int64
	Waiting int
	Weight  int64 // of those that wait
	Foreign int
	// Unreadable is why a limit that is stored cannot be read, or nil.
	Unreadable error

	OldestWait int64 // when the oldest waiting request was made; 0: none waits
	OldestHold int64 // the earliest time of the oldest grant; 0: none holds
	MaxHold    int64 // of that request, or 0
	Unbounded  int64 // as OldestHold, of the requests without a MaxHold
	ends       []int64
}

func (s *State) changeQueue(kind keyspace.Kind, key string, kv *mvccpb.KeyValue, now int64) {
	name, ok := s.space.ParseQueue(kind, key)
	if !ok {
		return
	}
	id := QueueID{kind, name}
	l := s.Queues[id]
	if l == nil {
		keys := s.space.Queue(kind, name)
		l = &Queue{keys: func() keyspace.Queue { return keys }, fixed: kinds[kind].fixed, details: s.details}
		s.Queues[id] = l
	}
	s.touch(l)
	if of := id.Label() + "/" + name; s.countServed(of, l, key, kv) && kind != keyspace.Rate {
		s.deaths.held(heldIn(l, of, key))
	}
	l.change(key, kv, now)
	if l.empty() {
		delete(s.Queues, id)
		delete(s.dirty, l)
	}
}

// touch marks a queue that changes.
func (s *State) touch(l *Queue) {
	if !s.dirty[l] {
		s.dirty[l] = true
		l.from = s.asOf
	}
}

// Touch marks all queues but those of limiters, for benchmarks.
func (s *State) Touch() {
	for _, l := range s.Queues {
		s.touch(l)
	}
}

// Len returns how many requests the queue has, and foreign keys.
func (l *Queue) Len() int { return len(l.entries) }

// Own reports whether the queue has a stored limit, in place of a limiter's default.
func (l *Queue) Own() bool {
	stored := mirror.ReadLimitRecord(l.limit)
	return stored.Rev != 0 && !stored.Damaged && !stored.Inherit
}

// PerSecond returns the stored rate of a queue of shares, or 0 if there is none that can be read.
func (l *Queue) PerSecond() float64 { return l.perSec }

// Rate returns the stored rate of a queue of shares, and into how many shares it is divided, or zero if there is none
// that can be read.
func (l *Queue) Rate() (rate record.Rate, shares int64) {
	if stored := mirror.ReadLimitRecord(l.limit); stored.Rev != 0 && !stored.Damaged {
		return stored.Rate, stored.Limit.Limit
	}
	return record.Rate{}, 0
}

func (l *Queue) empty() bool { return l.limit == nil && len(l.entries) == 0 }

// change adds, replaces or removes a key of the queue.
func (l *Queue) change(key string, kv *mvccpb.KeyValue, now int64) {
	switch keys := l.keys(); {
	case key == keys.Limit && l.fixed == 0:
		l.limit = kv
		rate, _ := l.Rate()
		l.perSec = rate.PerSecond
		l.admits = l.Own() && mirror.ReadLimitRecord(kv).Limit.Limit > 0
	case kv == nil:
		if e := l.entries[key]; e != nil {
			e.seen = gone
		}
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
		if l.details && len(kv.Value) <= record.MaxSize {
			fresh.value = &kv.Value
		}
		l.entries[key] = fresh
	}
}

// served reports whether a request is known to hold a permit, as of settle; with Options.Details also whether it was granted
// since, by the order as of settle: what is before it there, and has not ended, has its permits first.
func (l *Queue) served(key string) bool {
	e := l.entries[key]
	if e == nil || e.seen == 0 && !l.details {
		return false
	}
	slot, ok := l.keys().ParseSlot(key)
	switch {
	case !ok || e.lease != slot.Lease:
		return false
	case e.seen != 0:
		return true
	}
	used := slot.Weight
	for _, r := range l.order {
		if r.entry == e {
			break
		}
		if r.seen != gone {
			used += r.weight
		}
		if used > l.Now.Limit {
			return false
		}
	}
	return used <= l.Now.Limit
}

// inherit takes over since when the requests of a queue hold.
func (l *Queue) inherit(from *Queue) {
	if l == nil || from == nil {
		return
	}
	for key, now := range l.entries {
		if old := from.entries[key]; old != nil && old.create == now.create {
			now.since, now.seen = old.since, old.seen
		}
	}
}

// large is how many requests a queue has at most that is settled for each View. Ten thousand take ten milliseconds.
const large = 1000

// Settle computes which requests hold, in the queues that have changed.
func (s *State) Settle(now int64) { s.settleUpTo(math.MaxInt, now) }

// settleUpTo is Settle for the queues of at most so many requests.
func (s *State) settleUpTo(most int, now int64) {
	for l := range s.dirty {
		if len(l.entries) <= most {
			l.settle(s.revision, now)
			delete(s.dirty, l)
		}
	}
}

func (l *Queue) settle(revision, now int64) {
	kvs := make([]*mvccpb.KeyValue, 0, len(l.entries)+1)
	for key, e := range l.entries {
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte(key), CreateRevision: e.create, ModRevision: e.mod, Lease: e.lease})
	}
	if l.limit != nil {
		kvs = append(kvs, l.limit)
	}
	v := mirror.Read(l.keys(), l.fixed, l.base(), kvs, revision)
	l.Now = Summary{
		Limit: v.Limit, Known: v.Known, Used: v.Used, Waiting: len(v.Waiters), Foreign: v.Foreign,
		Unreadable: v.Unreadable(), Full: v.Known && (len(v.Waiters) > 0 || v.Used >= v.Limit),
	}
	if l.details {
		l.order, l.holders = make([]ranked, 0, len(v.Holders)+len(v.Waiters)), len(v.Holders)
		for _, r := range v.Requests() {
			l.order = append(l.order, ranked{l.entries[r.Key], r.Weight})
		}
	}
	for _, r := range v.Waiters {
		e := l.entries[r.Key]
		e.since, e.seen = 0, 0 // it may have counted as a holder while the limit was not known
		l.Now.Weight += r.Weight
		if l.Now.OldestWait == 0 || e.at < l.Now.OldestWait {
			l.Now.OldestWait = e.at
		}
	}
	for i, r := range v.Holders {
		e := l.entries[r.Key]
		if e.since == 0 {
			e.since = min(max(e.at, l.from), now)
		}
		if e.seen == 0 && i < v.Certain {
			e.seen = now
		}
		if e.maxHold == 0 && (l.Now.Unbounded == 0 || e.since < l.Now.Unbounded) {
			l.Now.Unbounded = e.since
		}
		if l.Now.OldestHold == 0 || e.since < l.Now.OldestHold {
			l.Now.OldestHold, l.Now.MaxHold = e.since, e.maxHold
		}
		if e.maxHold > 0 && e.seen != 0 {
			l.Now.ends = append(l.Now.ends, e.seen+e.maxHold)
		}
	}
}

// base returns the default limit of the queue.
func (l *Queue) base() mirror.LimitRecord {
	if l.limiter == nil || l.isTotal {
		return mirror.LimitRecord{}
	}
	return l.limiter.Base
}

// Overdue returns how many requests hold for longer than their MaxHold.
func (s Summary) Overdue(now int64) (n int) {
	for _, end := range s.ends {
		if end < now {
			n++
		}
	}
	return n
}

// Label returns the kind of a queue as it is shown.
func (id QueueID) Label() string { return kinds[id.Kind].label }

// KindOf is the inverse of Label.
func KindOf(label string) (keyspace.Kind, bool) {
	for kind, of := range kinds {
		if of.label == label {
			return kind, true
		}
	}
	return "", false
}

// ForeignKeys returns the keys in the range of the queue that are no requests, in order. With Options.Details.
func (l *Queue) ForeignKeys() (keys []string) {
	requests := make(map[*entry]bool, len(l.order))
	for _, r := range l.order {
		requests[r.entry] = true
	}
	for key, e := range l.entries {
		if !requests[e] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Requests returns how many requests hold permits and how many wait, by the lease of their session. A request at the key
// of a limiter with a total counts where it holds or waits last. With Options.Details.
func (s *State) Requests() (hold, wait map[int64]int) {
	hold, wait = map[int64]int{}, map[int64]int{}
	count := func(l *Queue, holders bool) {
		for i, e := range l.order {
			switch {
			case i >= l.holders:
				wait[e.lease]++
			case holders:
				hold[e.lease]++
			}
		}
	}
	for id, l := range s.Queues {
		count(l, id.Kind != keyspace.Rate)
	}
	for _, lim := range s.Limiters {
		if lim.Total != nil {
			count(lim.Total, true)
		}
		for _, l := range lim.Keys {
			count(l, lim.Total == nil)
		}
	}
	return hold, wait
}
