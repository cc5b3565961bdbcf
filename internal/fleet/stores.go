package fleet

import (
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// Stage is the state of a request, as a label.
type Stage int

const (
	none Stage = iota // no record
	InProgress
	Unknown
	Orphaned
	Released
	Done
	Failed
	Unreadable
	Stages
)

// names are the label values.
var names = [Stages]string{InProgress: "in_progress", Unknown: "unknown", Orphaned: "orphaned", Released: "released", Done: "done", Failed: "failed", Unreadable: "unreadable"}

// String returns the label value.
func (s Stage) String() string { return names[s] }

// Store is one store of requests.
type Store struct {
	state    *State
	name     string
	keys     int // the number of its keys
	requests map[string]request
	notes    map[string]string // of the requests that have one, by reference; with Options.Details
	owners   map[string]string // of the attempts that records name as working, by reference; with Options.Details
	unknown  map[string]int    // the number of requests in that stage, by the hash of their scope
	Count    [Stages]int
}

// UnknownOfOneScope returns how many requests of unknown outcome the scope has that has the most.
func (st *Store) UnknownOfOneScope() (most int) {
	for _, n := range st.unknown {
		most = max(most, n)
	}
	return most
}

// request is one record.
type request struct {
	record Stage // as if the session of its attempt had ended; none without a record
	owner  int64 // the lease of that session, if the record names an attempt as working
}

// requestAt is a request of one store.
type requestAt struct {
	store *Store
	ref   string
}

func (st *Store) stage(r request) Stage {
	if _, live := st.state.Sessions[r.owner]; live && r.owner != 0 {
		return InProgress
	}
	return r.record
}

// Refs returns the references of the requests in some stages, in no particular order.
func (st *Store) Refs(stages ...Stage) (refs []string) {
	for ref, r := range st.requests {
		if slices.Contains(stages, st.stage(r)) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Find returns the references that begin with a text, in no particular order, at most so many.
func (st *Store) Find(prefix string, most int) (refs []string) {
	for ref := range st.requests {
		if len(refs) == most {
			break
		}
		if strings.HasPrefix(ref, prefix) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Notes returns the notes of the requests that have one, by their references, as far as they are kept: see State.Unnoted. They
// are not changed.
func (st *Store) Notes() map[string]string { return st.notes }

// Owners returns the owners of the attempts that records name as working, whether their sessions live or not, by the references of
// their requests, as far as they are kept: see State.Unnoted. They are not changed.
func (st *Store) Owners() map[string]string { return st.owners }

// mostNotes bounds the notes and owners of requests that are kept, of all stores, in bytes with their references.
const mostNotes = 4 << 20

// keep keeps a text of a request, a note or an owner, or forgets it.
func (st *Store) keep(in map[string]string, ref, text string) {
	if old, known := in[ref]; known {
		st.state.noted -= len(ref) + len(old)
		delete(in, ref)
	}
	switch size := len(ref) + len(text); {
	case text == "" || !st.state.details:
	case st.state.noted+size > mostNotes:
		st.state.Unnoted = true
	default:
		st.state.noted += size
		in[ref] = text
	}
}

// Working returns the references of the requests whose records name an attempt of a session as working, in no
// particular order.
func (st *Store) Working(lease int64) (refs []string) {
	for at := range st.state.working[lease] {
		if at.store == st {
			refs = append(refs, at.ref)
		}
	}
	return refs
}

func (s *State) changeStore(key string, kv *mvccpb.KeyValue, known bool) {
	name, ok := s.space.ParseStore(key)
	if !ok {
		return
	}
	st := s.Stores[name]
	if st == nil {
		st = &Store{state: s, name: name, requests: map[string]request{}, notes: map[string]string{}, owners: map[string]string{}, unknown: map[string]int{}}
		s.Stores[name] = st
	}
	if e, ok := s.space.Store(name).ParseEntry(key); ok {
		after, note, owner := requestOf(kv)
		st.change(e.Ref, after)
		st.keep(st.notes, e.Ref, note)
		st.keep(st.owners, e.Ref, owner)
	}
	switch {
	case kv != nil && !known:
		st.keys++
	case kv == nil:
		if st.keys--; st.keys == 0 {
			delete(s.Stores, name)
		}
	}
}

// changeSession moves the requests of a session between stages when it begins and when it has ended: change does that.
func (s *State) changeSession(lease int64, change func()) {
	for at := range s.working[lease] {
		at.store.move(at.ref, at.store.stage(at.store.requests[at.ref]), none)
	}
	change()
	for at := range s.working[lease] {
		at.store.move(at.ref, none, at.store.stage(at.store.requests[at.ref]))
	}
}

func (st *Store) change(ref string, after request) {
	before, at := st.requests[ref], requestAt{st, ref}
	st.move(ref, st.stage(before), st.stage(after))
	if of := st.state.working[before.owner]; of != nil {
		if delete(of, at); len(of) == 0 {
			delete(st.state.working, before.owner)
		}
	}
	if after.owner != 0 {
		if st.state.working[after.owner] == nil {
			st.state.working[after.owner] = map[requestAt]struct{}{}
		}
		st.state.working[after.owner][at] = struct{}{}
	}
	if after == (request{}) {
		delete(st.requests, ref)
	} else {
		st.requests[ref] = after
	}
}

// move counts a request in another stage.
func (st *Store) move(ref string, before, after Stage) {
	st.Count[before]--
	st.Count[after]++
	st.countUnknown(ref, before, -1)
	st.countUnknown(ref, after, 1)
}

// countUnknown counts a request of unknown outcome for its scope, with which its reference begins.
func (st *Store) countUnknown(ref string, stage Stage, change int) {
	if stage != Unknown {
		return
	}
	scope, _, _ := strings.Cut(ref, "/")
	if st.unknown[scope] += change; st.unknown[scope] == 0 {
		delete(st.unknown, scope)
	}
}

// requestOf reads a record: its note, and the owner of the attempt that it names as working. nil is one that does not exist.
func requestOf(kv *mvccpb.KeyValue) (r request, note, owner string) {
	if kv == nil {
		return r, "", ""
	}
	rec, ok := record.DecodeAttempt(kv.Value)
	switch {
	case !ok:
		return request{record: Unreadable}, "", ""
	case rec.State == record.AttemptDone:
		return request{record: Done}, rec.Note, ""
	case rec.State == record.AttemptFailed:
		return request{record: Failed}, rec.Note, ""
	case rec.State == record.AttemptReleased:
		return request{record: Released}, rec.Note, ""
	case rec.State == record.AttemptWorking:
		r.owner, owner = rec.Lease, rec.Owner
	}
	if r.record = Orphaned; rec.Refuse {
		r.record = Unknown
	}
	return r, rec.Note, owner
}
