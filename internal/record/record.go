// Package record has the values that are written to etcd: small, versioned JSON, readable with
// etcdctl.
//
// Every value that is read is hostile: it may be too big, cut off, of a later version or not JSON
// at all. Decoding never panics and reports such a value by ok = false. Nothing that decides over
// admission is ever read from a value, except the limit.
//
// Old and new programs share a fleet during every rolling deploy. A later release may add fields to a
// record of the same version: a reader ignores those that it does not know, and drops them if it
// writes the record again. What must not be ignored or dropped needs another version, which is an
// UnreadableError here (docs/design/0054-formats.md).
package record

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// version is what this release writes.
const version = 1

// header is the first member of a record.
type header struct {
	Version int `json:"v"`
}

// readable reports whether this release can read the record.
func (h header) readable() bool { return h.Version == version }

// MaxSize bounds what is decoded, in bytes.
const MaxSize = 32 << 10

// Request is the value of a slot key. It is for people and for settling an unanswered Txn; rank
// and weight are in the key's name.
type Request struct {
	header
	Nonce string `json:"nonce"`            // unique for each attempt to create the key
	Owner string `json:"owner,omitempty"`  // of its session
	ID    string `json:"id,omitempty"`     // the caller's name for it
	Of    string `json:"at_key,omitempty"` // in the queue of a total: the request at its key
	Note  string `json:"note,omitempty"`
	AtMS  int64  `json:"at"` // by the wall clock of its process: for people only
	// MaxHoldMS is the option MaxHold of the call, or 0. It is for people only: the process of the
	// request ends the permit.
	MaxHoldMS int64 `json:"max_hold_ms,omitempty"`
}

// MaxHold returns the stored bound of the permit, or 0 if there is none or it is out of range.
func (r Request) MaxHold() time.Duration {
	if r.MaxHoldMS < 0 || r.MaxHoldMS > math.MaxInt64/int64(time.Millisecond) {
		return 0
	}
	return time.Duration(r.MaxHoldMS) * time.Millisecond
}

// Limit is the value of a semaphore's limit key.
type Limit struct {
	header
	Limit int64  `json:"limit"`
	Nonce string `json:"nonce"`
	By    string `json:"by,omitempty"`
	AtMS  int64  `json:"at"`
	// Through is the token up to which requests were admitted under the limits before this
	// one. Admission is in order, so one number describes all of them.
	Through int64 `json:"through,omitempty"`
	// Previous is the limit that this one replaced. It is set while Through may be too low:
	// see Settled.
	Previous int64 `json:"previous,omitempty"`
	// Initial says that no SetLimit wrote this limit: it is the one that the first program
	// was built with.
	Initial bool `json:"initial,omitempty"`
	// Settled says that Through is exact: it was read in the Txn that changed the limit and
	// added right after it.
	Settled bool `json:"settled,omitempty"`
	// Inherit says that this key of a limiter has the default limit again. The record stays for
	// what the other fields say.
	Inherit bool `json:"inherit,omitempty"`
	// Total says, in the default limit of a limiter, that its keys share a total.
	Total bool `json:"total,omitempty"`
	// Rate is what the permits divide among them, of a rate limiter.
	Rate Rate `json:"rate,omitzero"`
}

// Rate is the rate of a rate limiter, stored with the number of its shares.
type Rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int64   `json:"burst"`
	// Former is how many shares a request from before the change to this rate takes up: 0 is 1. See rate.Former.
	Former int64 `json:"former,omitempty"`
	// Before is the revision of that change. 0 is that of the record itself.
	Before int64 `json:"before,omitempty"`
}

// StoredAt returns the rate of a record of that revision, to be stored again: what requests weigh in it does not change.
func (r Rate) StoredAt(revision int64) Rate {
	if r.Former > 1 && r.Before == 0 {
		r.Before = revision
	}
	return r
}

// Unsettled reports whether Through may be too low.
func (r Limit) Unsettled() bool { return r.Previous > 0 && !r.Settled }

// ID is the value of an ID key: which request the ID stands for. Both keys are created in one Txn,
// so the request lives exactly as long as a slot key with the ID key's create revision.
type ID struct {
	header
	Slot  string `json:"slot"`
	Owner string `json:"owner,omitempty"`
	Lease int64  `json:"lease"`
}

// Session is the value of a presence key.
type Session struct {
	header
	Owner string `json:"owner"`
	ID    string `json:"id,omitempty"` // the same on all leases of the session
	AtMS  int64  `json:"at"`
	// Etcdkit and Program are the versions that its process was built from, for people only: see build.Versions.
	Etcdkit string `json:"etcdkit,omitempty"`
	Program string `json:"program,omitempty"`
}

// Notice says why a request of a session ended, or is asked to end.
type Notice struct {
	header
	Cause  string `json:"cause"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Key is that of the request, which is in the name of the notice's key. Other requests of the session may have its token.
	Key string `json:"-"`
}

// The causes of a Notice.
const (
	CauseEvicted  = "evicted"
	CauseReleased = "released"
	CauseStop     = "stop" // the request has not ended, and is asked to
)

// Encode writes a record. The records of this package can always be encoded. This one is written
// with each request, so it is encoded by hand: encoding/json takes several per cent of an
// uncontended acquire.
func (r Request) Encode() string {
	b := make([]byte, 0, 96+len(r.Nonce)+len(r.Owner)+len(r.ID)+len(r.Of)+len(r.Note))
	b = appendString(append(b, `{"v":1,"nonce":`...), r.Nonce)
	b = appendText(b, "owner", r.Owner)
	b = appendText(b, "id", r.ID)
	b = appendText(b, "at_key", r.Of)
	b = appendText(b, "note", r.Note)
	b = strconv.AppendInt(appendName(b, "at"), r.AtMS, 10)
	b = appendNumber(b, "max_hold_ms", r.MaxHoldMS)
	return string(append(b, '}'))
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || strings.IndexByte(`"\\<>&`, c) >= 0 {
			return append(b, encode(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Encode writes a record.
func (r Limit) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r ID) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Session) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Notice) Encode() string { r.Version = version; return encode(r) }

// DecodeRequest reads a Request.
func DecodeRequest(b []byte) (r Request, ok bool) { return decode[Request](b) }

// DecodeLimit reads a Limit.
func DecodeLimit(b []byte) (r Limit, ok bool) {
	r, ok = decode[Limit](b)
	return r, ok && valid(r.Limit) && valid(r.Previous) && r.Through >= 0
}

// DecodeID reads an ID.
func DecodeID(b []byte) (r ID, ok bool) { return decode[ID](b) }

// DecodeSession reads a Session.
func DecodeSession(b []byte) (r Session, ok bool) { return decode[Session](b) }

// DecodeNotice reads a Notice.
func DecodeNotice(b []byte) (r Notice, ok bool) { return decode[Notice](b) }

func valid(limit int64) bool { return 0 <= limit && limit <= math.MaxInt32 }

func encode(r any) string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, integers and bytes only
	}
	return string(b)
}

// decode returns a zero value for what it cannot read: nothing of a later version is taken for what it was in this one.
func decode[R interface{ readable() bool }](b []byte) (r R, ok bool) {
	var zero R
	if len(b) > MaxSize || json.Unmarshal(b, &r) != nil || !r.readable() {
		return zero, false
	}
	return r, true
}
