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
	none Stage = iota // a claim without a record
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
	keys     int // the number of its keys
	requests map[string]request
	unknown  map[string]int // the number of requests in that stage, by the hash of their scope
	Count    [Stages]int
}

// UnknownOfOneScope returns how many requests of unknown outcome the scope has that has the most.
func (st *Store) UnknownOfOneScope() (most int) {
	for _, n := range st.unknown {
		most = max(most, n)
	}
	return most
}

// request is one record with its claim.
type request struct {
	record Stage // of the record, as if there were no claim; none without a record
	claim  bool
}

func (r request) stage() Stage {
	if r.claim && (r.record == Unknown || r.record == Orphaned) {
		return InProgress
	}
	return r.record
}

// Refs returns the references of the requests in some stages, in no particular order.
func (st *Store) Refs(stages ...Stage) (refs []string) {
	for ref, r := range st.requests {
		if slices.Contains(stages, r.stage()) {
			refs = append(refs, ref)
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
		st = &Store{requests: map[string]request{}, unknown: map[string]int{}}
		s.Stores[name] = st
	}
	if e, claim, ok := s.space.Store(name).ParseEntry(key); ok {
		st.change(e.Ref, claim, kv)
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

func (st *Store) change(ref string, claim bool, kv *mvccpb.KeyValue) {
	before := st.requests[ref]
	after := before
	if claim {
		after.claim = kv != nil
	} else {
		after.record = stageOf(kv)
	}
	st.Count[before.stage()]--
	st.Count[after.stage()]++
	st.countUnknown(ref, before.stage(), -1)
	st.countUnknown(ref, after.stage(), 1)
	if after == (request{}) {
		delete(st.requests, ref)
	} else {
		st.requests[ref] = after
	}
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

// stageOf reads a record, without regard to its claim. nil is a record that does not exist.
func stageOf(kv *mvccpb.KeyValue) Stage {
	if kv == nil {
		return none
	}
	r, ok := record.DecodeAttempt(kv.Value)
	switch {
	case !ok:
		return Unreadable
	case r.State == record.AttemptDone:
		return Done
	case r.State == record.AttemptFailed:
		return Failed
	case r.State == record.AttemptReleased:
		return Released
	case r.Refuse:
		return Unknown
	default:
		return Orphaned
	}
}
