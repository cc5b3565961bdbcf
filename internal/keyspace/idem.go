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
func (s Space) Stores() string { return s.root + "idempotency/" }

// ParseStore returns the name of the store to whose range a key belongs.
func (s Space) ParseStore(key string) (name string, ok bool) {
	name, _, ok = split(key, s.Stores())
	return name, ok && CheckName(name) == nil
}

// Store returns the keys of a store. The name must have passed CheckName.
func (s Space) Store(name string) Store { return Store{Range: s.Stores() + escape(name) + "/"} }

// Records is the range of all records of the store.
func (s Store) Records() string { return s.Range + records }

const records = "record/"

// Scope is the range of the records of one scope.
func (s Store) Scope(scope string) string { return s.Records() + hashScope(scope) + "/" }

// Results is the range of all parts of results that do not fit into their records.
func (s Store) Results() string { return s.Range + "part/" }

// Entry returns the keys of one idempotency key. Scope, operation and ID belong to the customers
// of the caller, so they are hashed.
func (s Store) Entry(scope, op, id string) Entry {
	var parts [3 * (8 + MaxName)]byte
	hashed := parts[:0]
	for _, part := range [...]string{scope, op, id} {
		hashed = binary.BigEndian.AppendUint64(hashed, uint64(len(part)))
		hashed = append(hashed, part...)
	}
	sum, of := sha256.Sum256(hashed), sha256.Sum256([]byte(scope))
	var key [256]byte // one string has them all
	b := append(append(key[:0], s.Range...), records...)
	before := len(b)
	b = hex.AppendEncode(b, of[:scopeDigits/2])
	b = base64.RawURLEncoding.AppendEncode(append(b, '/'), sum[:])
	record := string(b)
	return Entry{Ref: record[before:], Record: record, store: s.Range}
}

// Ref returns the keys of the entry with a reference that came from Entry.Ref.
func (s Store) Ref(ref string) (Entry, bool) {
	scope, hash, ok := strings.Cut(ref, "/")
	if !ok || len(scope) != scopeDigits || len(hash) != hashDigits || escape(scope+hash) != scope+hash || strings.ContainsAny(ref, ".~") {
		return Entry{}, false
	}
	return Entry{Ref: ref, Record: s.Records() + ref, store: s.Range}, true
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
	Record string // the key of the record

	store string // its range
}

// Results is the range of the parts of a result that an attempt has written.
func (e Entry) Results(token int64) string { return e.AllResults() + hex16(token) + "/" }

// AllResults is the range of the parts of all attempts.
func (e Entry) AllResults() string {
	return Store{Range: e.store}.Results() + e.Ref[scopeDigits+1:] + "/"
}

// Part is the key of one of them.
func (e Entry) Part(token int64, n int) string { return e.Results(token) + hexN(uint64(n), 4) }

// ParseEntry reports whether a key is a record, and of which entry.
func (s Store) ParseEntry(key string) (Entry, bool) {
	rest, ok := strings.CutPrefix(key, s.Records())
	if !ok {
		return Entry{}, false
	}
	return s.Ref(rest)
}
