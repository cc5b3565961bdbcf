package etcdfake

import (
	"cmp"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// store is etcd's multi-version store: every key with all that it has ever been,
// back to the last compaction. What it hands out is never changed again.
type store struct {
	revision  int64    // of the last change; an empty etcd begins with 1
	compacted int64    // -1: nothing yet
	names     []string // all keys that have versions, sorted
	versions  map[string][]keyVersion
	live      []present // what there is at the revision of the last change, sorted by key
	latest    int64     // that revision; one more than revision within a transaction that has changed something
	log       []change  // every change since the compaction, in order
}

// keyVersion is what a key was from a revision on: nil after it was deleted.
type keyVersion struct {
	revision int64
	kv       *mvccpb.KeyValue
}

// present is a key that there is, with what it is.
type present struct {
	key string
	kv  *mvccpb.KeyValue
}

func (p present) compare(key string) int { return strings.Compare(p.key, key) }

// change is one put or delete.
type change struct {
	revision int64
	key      string
	event    *mvccpb.Event    // PrevKv is as of the revision before
	was      *mvccpb.KeyValue // just before, which may be within the same transaction
}

func newStore() *store {
	return &store{revision: 1, compacted: -1, versions: map[string][]keyVersion{}}
}

// span is a range of keys as etcd's requests name it.
type span struct{ key, end string }

// fromKey is the end that means "all keys from here on".
const fromKey = "\x00"

func (s span) holds(key string) bool {
	switch s.end {
	case "":
		return key == s.key
	case fromKey:
		return key >= s.key
	}
	return key >= s.key && key < s.end
}

// at returns what lies in a range as of a revision, sorted by key.
func (s *store) at(in span, revision int64) (kvs []*mvccpb.KeyValue) {
	if revision >= s.latest { // without the keys that were deleted, of which there are many in a long run
		i, _ := slices.BinarySearchFunc(s.live, in.key, present.compare)
		for ; i < len(s.live) && in.holds(s.live[i].key); i++ {
			kvs = append(kvs, s.live[i].kv)
		}
		return kvs
	}
	i, _ := slices.BinarySearch(s.names, in.key)
	for ; i < len(s.names) && in.holds(s.names[i]); i++ {
		if kv := s.get(s.names[i], revision); kv != nil {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

func (s *store) get(key string, revision int64) *mvccpb.KeyValue {
	vs := s.versions[key]
	for i := len(vs) - 1; i >= 0; i-- {
		if vs[i].revision <= revision {
			return vs[i].kv
		}
	}
	return nil
}

// write is one transaction: all that it changes is at one revision, and visible to
// what it reads afterwards.
type write struct {
	*store
	changes []change
}

// now is the revision of what the transaction sees.
func (w *write) now() int64 {
	if len(w.changes) > 0 {
		return w.revision + 1
	}
	return w.revision
}

func (w *write) put(key string, value []byte, lease int64) {
	next := w.revision + 1
	prev := w.get(key, next)
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: value, Lease: lease, CreateRevision: next, ModRevision: next, Version: 1}
	if prev != nil {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
	}
	w.add(key, kv, prev, &mvccpb.Event{Type: clientv3.EventTypePut, Kv: kv})
}

func (w *write) delete(key string) {
	prev := w.get(key, w.now())
	w.add(key, nil, prev, &mvccpb.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: w.revision + 1}})
}

func (w *write) add(key string, kv, was *mvccpb.KeyValue, event *mvccpb.Event) {
	if kv == nil || kv.Version > 1 { // a creation has nothing before it
		event.PrevKv = w.get(key, w.revision)
	}
	if i, known := slices.BinarySearch(w.names, key); !known {
		w.names = slices.Insert(w.names, i, key)
	}
	w.versions[key] = append(w.versions[key], keyVersion{w.revision + 1, kv})
	w.latest = w.revision + 1
	i, there := slices.BinarySearchFunc(w.live, key, present.compare)
	switch {
	case kv != nil && there:
		w.live[i].kv = kv
	case kv != nil:
		w.live = slices.Insert(w.live, i, present{key, kv})
	case there:
		w.live = slices.Delete(w.live, i, i+1)
	}
	w.changes = append(w.changes, change{w.revision + 1, key, event, was})
}

// end makes the transaction part of the store's history.
func (w *write) end() []change {
	w.revision = w.now()
	w.log = append(w.log, w.changes...)
	return w.changes
}

// since returns the changes from a revision on.
func (s *store) since(revision int64) []change {
	i, _ := slices.BinarySearchFunc(s.log, revision, func(c change, r int64) int { return cmp.Compare(c.revision, r) })
	return s.log[i:]
}

// compact forgets what was replaced before a revision.
func (s *store) compact(revision int64) {
	s.compacted = revision
	s.names = slices.DeleteFunc(s.names, func(key string) bool {
		vs := s.versions[key]
		first := 0
		for first+1 < len(vs) && vs[first+1].revision <= revision {
			first++
		}
		if vs[first].revision <= revision && vs[first].kv == nil {
			first++
		}
		if vs = slices.Clone(vs[first:]); len(vs) == 0 {
			delete(s.versions, key)
			return true
		}
		s.versions[key] = vs
		return false
	})
	s.log = slices.DeleteFunc(s.log, func(c change) bool { return c.revision < revision })
}

// clone returns a copy that later changes of either do not touch.
func (s *store) clone() *store {
	c := &store{revision: s.revision, compacted: s.compacted, names: slices.Clone(s.names), live: slices.Clone(s.live), latest: s.latest, log: slices.Clone(s.log), versions: make(map[string][]keyVersion, len(s.versions))}
	for key, vs := range s.versions {
		c.versions[key] = slices.Clone(vs)
	}
	return c
}

// prefixed returns the keys of the present that begin with a prefix.
func (s *store) prefixed(prefix string) (keys []string) {
	for _, kv := range s.at(span{prefix, fromKey}, s.revision) {
		if key := string(kv.Key); strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}
