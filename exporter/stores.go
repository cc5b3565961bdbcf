package exporter

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// stage is the state of a request, as a label.
type stage int

const (
	none stage = iota // a claim without a record
	inProgress
	unknown
	orphaned
	released
	done
	failed
	unreadable
	stages
)

// stageNames are the label values.
var stageNames = [stages]string{inProgress: "in_progress", unknown: "unknown", orphaned: "orphaned", released: "released", done: "done", failed: "failed", unreadable: "unreadable"}

// store is one store of requests.
type store struct {
	keys     int // the number of its keys
	requests map[string]request
	count    [stages]int
}

// request is one record with its claim.
type request struct {
	record stage // of the record, as if there were no claim; none without a record
	claim  bool
}

func (r request) stage() stage {
	if r.claim && (r.record == unknown || r.record == orphaned) {
		return inProgress
	}
	return r.record
}

func (s *state) changeStore(key string, kv *mvccpb.KeyValue, known bool) {
	name, ok := s.space.ParseStore(key)
	if !ok {
		return
	}
	st := s.stores[name]
	if st == nil {
		st = &store{requests: map[string]request{}}
		s.stores[name] = st
	}
	if e, claim, ok := s.space.Store(name).ParseEntry(key); ok {
		st.change(e.Ref, claim, kv)
	}
	switch {
	case kv != nil && !known:
		st.keys++
	case kv == nil:
		if st.keys--; st.keys == 0 {
			delete(s.stores, name)
		}
	}
}

func (st *store) change(ref string, claim bool, kv *mvccpb.KeyValue) {
	before := st.requests[ref]
	after := before
	if claim {
		after.claim = kv != nil
	} else {
		after.record = stageOf(kv)
	}
	st.count[before.stage()]--
	st.count[after.stage()]++
	if after == (request{}) {
		delete(st.requests, ref)
	} else {
		st.requests[ref] = after
	}
}

// stageOf reads a record, without regard to its claim. nil is a record that does not exist.
func stageOf(kv *mvccpb.KeyValue) stage {
	if kv == nil {
		return none
	}
	r, ok := record.DecodeAttempt(kv.Value)
	switch {
	case !ok:
		return unreadable
	case r.State == record.AttemptDone:
		return done
	case r.State == record.AttemptFailed:
		return failed
	case r.State == record.AttemptReleased:
		return released
	case r.Refuse:
		return unknown
	default:
		return orphaned
	}
}
