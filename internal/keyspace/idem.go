package keyspace

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Store is the part of etcd that belongs to one store of idempotency keys.
type Store struct {
	Range string
}

// Stores is the range of all stores.
func (s Space) Stores() string { return s.root + "idem/" }

// Store returns the keys of a store. The name must have passed CheckName.
func (s Space) Store(name string) Store { return Store{Range: s.Stores() + escape(name) + "/"} }

// Records is the range of all records and claims of the store.
func (s Store) Records() string { return s.Range + "r/" }

// Scope is the range of the records and claims of one scope.
func (s Store) Scope(scope string) string { return s.Records() + hashScope(scope) + "/" }

// Results is the range of all parts of results that do not fit into their records.
func (s Store) Results() string { return s.Range + "b/" }

// Entry returns the keys of one idempotency key. Scope, operation and ID belong to the customers
// of the caller, so they are hashed.
func (s Store) Entry(scope, op, id string) Entry {
	h := sha256.New()
	for _, part := range [...]string{scope, op, id} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	e, _ := s.Ref(hashScope(scope) + "/" + base64.RawURLEncoding.EncodeToString(h.Sum(nil)))
	return e
}

// Ref returns the keys of the entry with a reference that came from Entry.Ref.
func (s Store) Ref(ref string) (Entry, bool) {
	scope, hash, ok := strings.Cut(ref, "/")
	if !ok || len(scope) != scopeDigits || len(hash) != hashDigits || escape(scope+hash) != scope+hash || strings.ContainsAny(ref, ".~") {
		return Entry{}, false
	}
	return Entry{Ref: ref, Record: s.Records() + ref, results: s.Results() + hash + "/"}, true
}

// The lengths of the parts of a reference. They are fixed, so no entry's range contains
// another's.
const (
	scopeDigits = 16
	hashDigits  = 43
)

func hashScope(scope string) string {
	sum := sha256.Sum256([]byte(scope))
	return hex.EncodeToString(sum[:scopeDigits/2])
}

// Entry is the part of etcd that belongs to one idempotency key.
type Entry struct {
	Ref    string // unique in the store
	Record string // the record; as a range, the record and the claim

	results string
}

// Claim exists while an attempt is under way, on its session's lease.
func (e Entry) Claim() string { return e.Record + "/claim" }

// Results is the range of the parts of a result that an attempt has written.
func (e Entry) Results(token int64) string { return e.results + hex16(token) + "/" }

// AllResults is the range of the parts of all attempts.
func (e Entry) AllResults() string { return e.results }

// Part is the key of one of them.
func (e Entry) Part(token int64, n int) string { return e.Results(token) + hexN(uint64(n), 4) }

// ParseEntry reports whether a key is a record or a claim, and of which entry.
func (s Store) ParseEntry(key string) (e Entry, claim, ok bool) {
	rest, ok := strings.CutPrefix(key, s.Records())
	if !ok {
		return Entry{}, false, false
	}
	rest, claim = strings.CutSuffix(rest, "/claim")
	e, ok = s.Ref(rest)
	return e, claim, ok
}
