package fleet

import (
	"cmp"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/build"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// State is what is shown of a namespace, as of one revision. It is not safe for concurrent
// use. Times are in milliseconds.
type State struct {
	space    keyspace.Space
	ranges   ranges
	revision int64
	asOf     int64 // the time of the answer that has confirmed it last, by this process's clock; 0: none has

	keys    map[string]int64  // the lease of each key
	foreign map[string]string // the keys that are not etcdkit's, outside of queues: the job in whose range each is, or ""
	leases  map[int64]int     // the number of keys of each lease
	details bool              // values are kept as well
	clocks  clocks
	beats   map[string]int64 // the times that processes write once a minute, by key
	users   users
	deaths  deaths
	noted   int            // bytes of the notes of requests
	served  map[string]int // the permits that have ended since they were taken, by queue; with Options.Details

	// Sessions are the live ones, by lease.
	Sessions map[int64]Session
	Queues   map[QueueID]*Queue
	Limiters map[string]*Limiter
	Jobs     map[string]*Job
	Stores   map[string]*Store
	Changes  map[string]record.Change         // what operators have changed, by key, zero for what cannot be read; with Options.Details
	Unnoted  bool                             // notes of requests were left out: there are too many
	dirty    map[*Queue]bool                  // the queues that have changed since settle
	working  map[int64]map[requestAt]struct{} // the requests whose records name an attempt as working, by the lease of its session
}

// QueueID identifies a queue that is not one of a limiter.
type QueueID struct {
	Kind keyspace.Kind
	Name string
}

// Session is a live session.
type Session struct {
	Owner    string
	Since    int64 // when it began, by the clock of its process; 0: not known
	Versions build.Versions
}

// ranges are the parts of a namespace.
type ranges struct {
	kinds                         map[keyspace.Kind]string
	limiters, jobs, stores, users string
	changes, clocks               string
}

// NewState returns the state of an empty namespace.
func NewState(space keyspace.Space, details bool) *State {
	s := &State{
		space: space, keys: map[string]int64{}, foreign: map[string]string{}, leases: map[int64]int{}, Sessions: map[int64]Session{}, clocks: clocks{}, beats: map[string]int64{}, details: details,
		Queues: map[QueueID]*Queue{}, Limiters: map[string]*Limiter{}, Jobs: map[string]*Job{}, Stores: map[string]*Store{}, Changes: map[string]record.Change{}, dirty: map[*Queue]bool{}, working: map[int64]map[requestAt]struct{}{},
		ranges: ranges{kinds: map[keyspace.Kind]string{}, limiters: space.Limiters(), jobs: space.Jobs(), stores: space.Stores(), users: space.Users(), changes: space.Changes(), clocks: space.Clocks()},
		served: map[string]int{}, deaths: deaths{of: map[int64]Died{}, holds: map[int64][]Held{}},
		users: users{of: map[string][]string{}, have: map[string]int{}, unread: map[string]bool{}},
	}
	for kind := range kinds {
		s.ranges.kinds[kind] = space.Queues(kind)
	}
	return s
}

// Put adds a key or replaces its value, at a time.
func (s *State) Put(kv *mvccpb.KeyValue, now int64) {
	key := string(kv.Key)
	old, known := s.keys[key]
	if known && old != kv.Lease {
		s.unlease(old)
	}
	if kv.Lease != 0 && (!known || old != kv.Lease) {
		s.leases[kv.Lease]++
	}
	s.keys[key] = kv.Lease
	if !known {
		s.addForeign(key)
	}
	if kv.Lease != 0 && key == s.space.Session(kv.Lease).Alive() {
		var of Session
		if r, ok := record.DecodeSession(kv.Value); ok {
			of = Session{Owner: r.Owner, Since: r.AtMS, Versions: build.Versions{Etcdkit: r.Etcdkit, Program: r.Program}}
		}
		s.changeSession(kv.Lease, func() { s.Sessions[kv.Lease] = of })
		// The clock may have been set since the session began: a beat is newer.
		s.ahead(kv.Lease, cmp.Or(s.beats[s.space.Clock(kv.Lease)], of.Since), now)
		return
	}
	s.change(key, kv, known, now)
}

// Remove removes a key that was deleted at a revision, of which that is known at a time.
func (s *State) Remove(key string, revision, now int64) {
	lease, known := s.keys[key]
	if !known {
		return
	}
	s.deaths.begin(lease, revision)
	delete(s.keys, key)
	delete(s.foreign, key)
	s.unlease(lease)
	if lease != 0 && key == s.space.Session(lease).Alive() {
		s.deaths.ended(lease, s.Sessions[lease].Owner, s.working[lease], now)
		s.changeSession(lease, func() { delete(s.Sessions, lease) })
		delete(s.clocks, lease)
		return
	}
	s.change(key, nil, true, now)
}

func (s *State) unlease(lease int64) {
	if s.leases[lease]--; s.leases[lease] <= 0 {
		delete(s.leases, lease)
	}
}

// change passes a change of a key on to its queue, job or store; nil removes the key. known says that
// the key existed before.
func (s *State) change(key string, kv *mvccpb.KeyValue, known bool, now int64) {
	switch {
	case strings.HasPrefix(key, s.ranges.limiters):
		s.changeLimiter(key, kv, now)
	case strings.HasPrefix(key, s.ranges.jobs):
		s.changeJob(key, kv, known, now)
	case strings.HasPrefix(key, s.ranges.users):
		s.users.change(key, kv)
	case strings.HasPrefix(key, s.ranges.clocks):
		s.changeBeat(key, kv, now)
	case strings.HasPrefix(key, s.ranges.changes):
		if delete(s.Changes, key); kv != nil && s.details {
			s.Changes[key], _ = record.DecodeChange(kv.Value)
		}
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
func (s *State) inherit(from *State) {
	s.served = from.served
	for id, l := range s.Queues {
		l.inherit(from.Queues[id])
	}
	for name, l := range s.Limiters {
		old := from.Limiters[name]
		if old == nil {
			old = &Limiter{}
		}
		l.Total.inherit(old.Total)
		for key, of := range l.Keys {
			of.inherit(old.Keys[key])
		}
	}
	s.deaths.inherit(from.deaths)
	for l := range s.dirty {
		l.from = from.asOf
	}
	for name, j := range s.Jobs {
		if old := from.Jobs[name]; old != nil {
			j.inherit(old)
		}
	}
	for lease := range s.Sessions {
		if m, ok := from.clocks[lease]; ok && (s.clocks[lease] == measurement{} || m.lead > s.clocks[lease].lead) {
			s.clocks[lease] = m
		}
	}
}

// TakeServed returns how many requests of each queue have ended since it was called last that held a permit, released or
// lost; waiters that have left are none of them. Queues are named as by their labels, semaphore/charge or
// limiter/api/acme. What has ended while the watch was interrupted is not counted. With Options.Details.
func (s *State) TakeServed() map[string]int {
	served := s.served
	s.served = map[string]int{}
	return served
}

// countServed counts a request that ends by a change of its queue. It reports whether that held a permit.
func (s *State) countServed(queue string, l *Queue, key string, kv *mvccpb.KeyValue) bool {
	if kv != nil || !l.served(key) {
		return false
	}
	if s.details {
		s.served[queue]++
	}
	return true
}

// Died returns the processes that died within an hour, as of a time, at most ten, the latest first: those that held a permit, ran
// a job or executed a request, as far as the namespace was followed then. name returns an owner as it is shown: of those that are
// shown alike the latest counts.
func (s *State) Died(now int64, name func(owner string) string) []Died {
	return s.deaths.list(now, name)
}

// Revision returns the revision of the state.
func (s *State) Revision() int64 { return s.revision }

// Keys returns how many keys the namespace has.
func (s *State) Keys() int { return len(s.keys) }

// Leases returns on how many leases its keys are.
func (s *State) Leases() int { return len(s.leases) }

// addForeign notes a key that is not etcdkit's.
func (s *State) addForeign(key string) {
	if keyspace.Foreign(s.space, key) {
		s.foreign[key] = ""
	} else if name, _, ok := s.space.ParseJob(key); ok && !s.space.Job(name).Owns(key) {
		s.foreign[key] = name
	}
}

// Later returns the keys of the namespace that are reserved for later releases, in order. It visits all keys.
func (s *State) Later() (keys []string) {
	for key := range s.keys {
		if keyspace.Later(s.space, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Foreign returns the keys of the namespace that are not etcdkit's: those outside of queues and jobs, in order, and how
// many are in the range of each job. Summary.Foreign has those of a queue.
func (s *State) Foreign() (keys []string, jobs map[string]int) {
	jobs = map[string]int{}
	for key, job := range s.foreign {
		if job == "" {
			keys = append(keys, key)
		} else {
			jobs[job]++
		}
	}
	slices.Sort(keys)
	return keys, jobs
}
