package idempotency

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// Ref is the reference of a request's record: a hash of the Key, which does not disclose it.
type Ref string

// Ref returns the reference of a key.
func (s *Store) Ref(key Key) Ref { return Ref(s.keys.Entry(key.Scope, key.Op, key.ID).Ref) }

// State is the state of a request.
type State int

// The states of a request.
const (
	InProgress State = iota + 1 // an attempt is in progress
	Done                        // a result is recorded
	Failed                      // a failure is recorded
	Unknown                     // the latest attempt was lost: OnLost decides what a duplicate does
	Released                    // the key was released; recovery points or the fingerprint are kept
	Unreadable                  // the record cannot be read
)

var states = map[State]string{InProgress: "in progress", Done: "done", Failed: "failed", Unknown: "unknown", Released: "released", Unreadable: "unreadable"}

// String returns the state in words.
func (s State) String() string { return cmp.Or(states[s], fmt.Sprintf("State(%d)", int(s))) }

// Record describes a request for an operator. Its times are by the clock of the process that wrote
// them. Its JSON leaves out a zero time.
type Record struct {
	Ref     Ref
	State   State
	Scope   string
	Op      string
	Via     string    // the entry of the latest attempt: "do", "http", "http/connect" and the like, "grpc", or what the option Via says
	Returns string    // the type of the message that the call returns: see the option Returns
	Note    string    // for operators: see the option Note
	Attempt int       // the number of the latest attempt
	Token   int64     // of the attempt that recorded the outcome; 0 before
	Owner   string    // the name of the latest attempt's session
	Started time.Time `json:",omitzero"` // of the latest attempt; zero if it is not known
	Ended   time.Time `json:",omitzero"` // zero if no outcome is recorded
	Failure string
	Bytes   int // of the result as stored
	// Codec is the name of Options.Codec of the store that has begun the request, or, of one that was done, of the
	// Codec of its result. Empty is none.
	Codec   string
	Omitted bool
	Refuse  bool // the policy of the request is Refuse
	// Alive says that the session of an attempt in progress, or of a lost one, whose outcome an operator may have
	// recorded, exists: its process may still work. An attempt is lost in a process that lives by MaxExecution, Abandon, a panic, or the loss of its
	// session's lease: the session then has another lease as soon as it reaches etcd. Not seen is a process
	// without a session at this moment, since it is cut off from etcd or paused, or has closed its session. While a session exists
	// whose key this release cannot read, such as one of a later release, each of these processes may have it.
	Alive bool
	// Steps are the names of the recovery points that are recorded, in their order, of an attempt in progress, of a
	// lost one, and after a release: what the work has certainly done.
	Steps    []string `json:",omitempty"`
	Resolved string   // the session that called Resolve; empty if none did
	// Earlier is what operators have recorded before, oldest first: what was corrected since, and what another
	// attempt has followed. The latest six are kept.
	Earlier  []EarlierResolution `json:",omitempty"`
	Revision int64               // of etcd, of the record's last change

	begun begunBy // the latest attempt
}

// EarlierResolution is an outcome that an operator has recorded, and that was replaced since.
type EarlierResolution struct {
	State   State  // Done, Failed, or Released after NotDone
	By      string // the beginning of the name of the session that called Resolve
	At      time.Time
	Failure string // its beginning
}

// String describes the record in one line, without the result.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v", r.Ref, r.State)
	if r.State != Unreadable {
		fmt.Fprintf(&b, ": %q/%q, attempt %d by %q", r.Scope, r.Op, r.Attempt, r.Owner)
	}
	if r.Note != "" {
		fmt.Fprintf(&b, ", note %q", r.Note)
	}
	if len(r.Steps) > 0 {
		fmt.Fprintf(&b, ", steps %q", r.Steps)
	}
	if r.State == Unknown && r.Alive {
		b.WriteString(", whose process lives")
	}
	if !r.Started.IsZero() {
		fmt.Fprintf(&b, ", started %v", r.Started.Format(time.RFC3339))
	}
	if !r.Ended.IsZero() {
		fmt.Fprintf(&b, ", ended %v", r.Ended.Format(time.RFC3339))
	}
	if r.Failure != "" {
		fmt.Fprintf(&b, ", failure %q", r.Failure)
	}
	if r.Resolved != "" {
		fmt.Fprintf(&b, ", resolved by %q", r.Resolved)
	}
	return b.String()
}

// Get returns the record of a request and, if there is one, its outcome. It returns ErrNotFound,
// ErrInvalid if ref is not a reference, ErrUnreadable together with the Record if the outcome cannot
// be read, ErrClosed, ctx's error or one of etcd's.
func (s *Store) Get(ctx context.Context, ref Ref) (r Record, out *Outcome, err error) {
	e, st, err := find(ctx, s, ref)
	if err == nil {
		one := []Record{describe(e, st)}
		err = (&living{sess: s.sess}).find(ctx, one)
		r = one[0]
	}
	if err == nil && st.finished() {
		if out, err = s.reader.load(ctx, e, st); err == nil && out == nil {
			err = ErrNotFound // it expires at this moment
		}
	}
	return r, out, s.about(ctx, "get record "+string(ref), err)
}

// Delete deletes the record of a request in any state but InProgress: the next call runs the
// function. Other processes may replay a deleted outcome for CacheFor. What the record says can
// change between the look at it and the call: pass OnlyRevision. Delete returns ErrInProgress, as an
// *InProgressError; ErrAlive, without EvenIfAlive, for a lost attempt whose process lives, also if an operator
// has recorded its outcome, and for a record of a later version, which may be of an attempt in progress; ErrNotFound,
// ErrInvalid, ErrConflict if the record has changed meanwhile, ErrClosed, ctx's error or one of etcd's;
// after the last three the record may be deleted or not, and after an ErrConflict that names a lost answer it may have
// been deleted, and made again since.
func (s *Store) Delete(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	o, err := operatorOf(ctx, s, ref, opts)
	if err == nil {
		err = o.delete(ctx)
	}
	return s.about(ctx, "delete record "+string(ref), err)
}

// Resolve records what an operator has found out about a request in state Unknown. The outcome is kept
// for RetainUnknown of the store that has begun the request, which is no shorter than any Retain there; so
// an operator's store needs no option of the service's but its Codec, as Codec or in OldCodecs: a result is stored
// with the Codec of the store that has begun the request. Another attempt can be lost between
// the look at the record and the call: pass OnlyRevision.
//
// Resolve also corrects what an operator has recorded before, and no function's outcome: done and failed replace
// each other, or themselves with another result or text; NotDone is replaced by either of them, while no other attempt
// has begun. Nothing is replaced by NotDone, since duplicates may have got the outcome. A correction needs OnlyRevision.
// Both outcomes are in the record's history (Record.Earlier), and the correction is kept as long as what it corrects.
// For CacheFor and a third of the session's TTL of each process that has the store, duplicates there may get either.
//
// Resolve returns ErrInProgress, as an *InProgressError, if an attempt is in progress; ErrAlive for NotDone while
// the attempt's process lives, without EvenIfAlive; ErrConflict if the request is in another state, or changes
// meanwhile; ErrInvalid, too, for a result that the entry in Record.Via cannot replay, or if the request's store has another
// Codec than this one knows (Options.Codec, OldCodecs), or none, since the services could not read the result; ErrNotFound, ErrTooLarge for a result of more than 128 KiB,
// ErrUnreadable, ErrClosed, ctx's error or one of etcd's; after the last three the outcome may be recorded or not, and after
// an ErrConflict that names a lost answer it may have been recorded, and replaced since.
func (s *Store) Resolve(ctx context.Context, ref Ref, what Resolution, opts ...ChangeOption) error {
	err := what.given()
	if err == nil {
		var o operator
		if o, err = operatorOf(ctx, s, ref, opts); err == nil {
			err = o.resolve(ctx, what)
		}
	}
	return s.about(ctx, "resolve record "+string(ref), err)
}

// Count returns the number of records in the store. It returns ErrClosed, an error of etcd's or ctx's.
func (s *Store) Count(ctx context.Context) (int64, error) { return s.countBelow(ctx, s.keys.Records()) }

// CountScope returns the number of records of one scope, which Options.MaxPerScope bounds. It returns ErrClosed, an error
// of etcd's or ctx's.
func (s *Store) CountScope(ctx context.Context, scope string) (int64, error) {
	return s.countBelow(ctx, s.keys.Scope(scope))
}

func (s *Store) countBelow(ctx context.Context, prefix string) (n int64, err error) {
	if err = s.closed(); err == nil {
		n, err = keysBelow(ctx, s.sess.KV(), prefix)
	}
	return n, s.about(ctx, "count records", err)
}
