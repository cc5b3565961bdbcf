package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
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
	Ref      Ref
	State    State
	Scope    string
	Op       string
	Attempt  int       // the number of the latest attempt
	Token    int64     // of the attempt that recorded the outcome; 0 before
	Owner    string    // the name of the latest attempt's session
	Started  time.Time `json:",omitzero"` // of the latest attempt; zero if it is not known
	Ended    time.Time `json:",omitzero"` // zero if no outcome is recorded
	Failure  string
	Bytes    int // of the result as stored
	Omitted  bool
	Refuse   bool   // the policy of the request is Refuse
	Resolved string // the session that called Resolve; empty if none did
	Revision int64  // of etcd, of the record's last change
}

// String describes the record in one line, without the result.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v", r.Ref, r.State)
	if r.State != Unreadable {
		fmt.Fprintf(&b, ": %q/%q, attempt %d by %q", r.Scope, r.Op, r.Attempt, r.Owner)
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
	e, st, err := s.find(ctx, ref)
	if err == nil {
		r = describe(e, st)
	}
	if err == nil && st.finished() {
		if out, err = s.load(ctx, e, st); err == nil && out == nil {
			err = ErrNotFound // it expires at this moment
		}
	}
	return r, out, s.about(ctx, "get record "+string(ref), err)
}

// about wraps an error with what was attempted.
func (s *Store) about(ctx context.Context, attempted string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("idempotency: %s in store %q: %w", attempted, s.name, s.sess.Explain(because(ctx, err)))
}

// closed returns ErrClosed once the session is closed: the leases on which it would write are
// renewed no more.
func (s *Store) closed() error {
	if s.sess.Context().Err() != nil {
		return ErrClosed
	}
	return nil
}

// entry returns the keys of a record.
func (s *Store) entry(ref Ref) (keyspace.Entry, error) {
	e, ok := s.keys.Ref(string(ref))
	if !ok {
		return e, invalid("%q is not a reference (Store.Ref, Record.Ref)", string(ref))
	}
	return e, nil
}

func (s *Store) find(ctx context.Context, ref Ref) (keyspace.Entry, state, error) {
	e, err := s.entry(ref)
	if err == nil {
		err = s.closed()
	}
	if err != nil {
		return e, state{}, err
	}
	st, err := s.read(ctx, e, true)
	if err == nil && st.kv == nil {
		err = ErrNotFound
	}
	return e, st, err
}

// ChangeOption configures a call of Delete or Resolve.
type ChangeOption func(*change)

type change struct{ only *int64 }

// OnlyRevision lets Delete or Resolve change a record only as it is at that revision, which is the
// Record.Revision that the caller has looked at: if another attempt has begun or ended since, they
// return ErrConflict and change nothing.
func OnlyRevision(revision int64) ChangeOption {
	return func(c *change) { c.only = &revision }
}

// allow returns ErrConflict if the options exclude a record, and ErrInvalid for an option that is nil.
func allow(opts []ChangeOption, st state) error {
	var c change
	for i, o := range opts {
		if o == nil {
			return invalid("Option %d is nil", i+1)
		}
		o(&c)
	}
	if c.only != nil && *c.only != st.mod() {
		return fmt.Errorf("%w: the record has changed since revision %d; its revision is %d", ErrConflict, *c.only, st.mod())
	}
	return nil
}

// Delete deletes the record of a request in any state but InProgress: the next call runs the
// function. Other processes may replay a deleted outcome for CacheFor. What the record says can
// change between the look at it and the call: pass OnlyRevision. Delete returns ErrInProgress, as an
// *InProgressError, ErrNotFound, ErrInvalid, ErrClosed, ErrConflict if the record has changed
// meanwhile, ctx's error or one of etcd's; after the last two the record may be deleted or not.
func (s *Store) Delete(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	e, st, err := s.find(ctx, ref)
	if err == nil {
		err = allow(opts, st)
	}
	if err == nil {
		_, err = s.amendIdle(ctx, e, st, []clientv3.Op{clientv3.OpDelete(e.Record), clientv3.OpDelete(e.AllResults(), clientv3.WithPrefix())},
			func(kv *mvccpb.KeyValue) bool { return kv == nil })
	}
	return s.about(ctx, "delete record "+string(ref), err)
}

// amendIdle changes the record of a request that has no attempt in progress. It returns the
// revision of the change.
func (s *Store) amendIdle(ctx context.Context, e keyspace.Entry, st state, then []clientv3.Op, mine func(*mvccpb.KeyValue) bool) (int64, error) {
	if st.claim {
		return 0, s.inProgress(ctx, st)
	}
	sent := now()
	res, err := commit.Amend(ctx, s.client, commit.Amendment{
		Key: e.Record, Mod: st.mod(), Then: then, Mine: mine,
		If: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(e.Claim()), "=", 0)}, Same: func() clientv3.Op {
			return clientv3.OpPut(e.Record, string(st.kv.Value), clientv3.WithLease(clientv3.LeaseID(st.kv.Lease)))
		},
	})
	s.cache.forget(e.Ref)
	switch {
	case err != nil:
		return 0, err
	case res.Outcome == commit.Amended:
		s.saw(res.Mod, sent) // so that no answer of a member that lags behind is used here
		return res.Mod, nil
	case res.Outcome == commit.LeaseGone:
		return 0, fmt.Errorf("%w: %w", ErrConflict, rpctypes.ErrLeaseNotFound)
	}
	return 0, fmt.Errorf("%w: the record has changed meanwhile", ErrConflict)
}

// inProgress is the error of a change of a record while its attempt is in progress.
func (s *Store) inProgress(ctx context.Context, st state) error {
	return &InProgressError{Key: Key{Scope: st.rec.Scope, Op: st.rec.Op}, Owner: st.rec.Owner, Attempt: st.rec.Number, RetryAfter: s.retryAfter(ctx, st.rec.Lease)}
}

// Resolution is what an operator has found out about a request whose attempt was lost: WasDone,
// HasFailed or NotDone. The zero value is ErrInvalid.
type Resolution struct {
	state string // of the record; "" is none of the three
	value []byte
	text  string
}

// WasDone resolves that the request was done, with this result: JSON for Do, the bytes of
// Response.Encode for idemhttp, those of Encode for idemgrpc.
func WasDone(result []byte) Resolution { return Resolution{state: record.AttemptDone, value: result} }

// HasFailed resolves that the request failed for good: duplicates get a *FailedError. The text is
// stored in plain text, whatever the Codec.
func HasFailed(failure string) Resolution {
	return Resolution{state: record.AttemptFailed, text: failure}
}

// NotDone resolves that nothing was done: the next call runs the function. The recovery points are
// kept.
func NotDone() Resolution { return Resolution{state: record.AttemptReleased} }

// Resolve records the outcome of a request in state Unknown. The outcome is kept for RetainUnknown of
// the store that has begun the request, which is no shorter than any Retain there; so an operator's
// store needs no option of the service's but its Codec. Another attempt can be lost between the look at
// the record and the call: pass OnlyRevision. Resolve returns ErrInProgress, as an *InProgressError, if
// an attempt is in progress; ErrConflict if the request is in another state, or changes meanwhile;
// ErrNotFound, ErrInvalid, ErrTooLarge for a result of more than 128 KiB, ErrUnreadable, ErrClosed,
// ctx's error or one of etcd's; after the last two the outcome may be recorded or not.
func (s *Store) Resolve(ctx context.Context, ref Ref, what Resolution, opts ...ChangeOption) error {
	return s.about(ctx, "resolve record "+string(ref), s.resolve(ctx, ref, what, opts))
}

func (s *Store) resolve(ctx context.Context, ref Ref, what Resolution, opts []ChangeOption) error {
	if what.state == "" {
		return invalid("the Resolution is empty (WasDone, HasFailed or NotDone)")
	}
	e, st, err := s.find(ctx, ref)
	if err == nil {
		err = allow(opts, st)
	}
	switch {
	case err != nil:
		return err
	case st.bad:
		return ErrUnreadable
	case st.claim:
		return s.inProgress(ctx, st)
	case !st.lost():
		return fmt.Errorf("%w: the request is %v", ErrConflict, describe(e, st).State)
	}
	r := st.rec
	r.State, r.EndMS, r.By, r.Token = what.state, time.Now().UnixMilli(), s.sess.Owner(), st.mod()
	if r.State != record.AttemptReleased {
		stored, codec, err := s.encode(what.value, bound(e))
		if err != nil {
			return err
		}
		if len(stored) > inline {
			return fmt.Errorf("%w: the result has %d bytes, more than %d", ErrTooLarge, len(stored), inline)
		}
		r.Body, r.Codec, r.Size, r.Error = stored, codec, len(stored), record.Text(what.text)
	}
	text := r.Encode()
	unknown, err := s.keptUnknown(ctx, st)
	if err != nil {
		return err
	}
	pool := s.retain(cmp.Or(unknown, s.opts.Retain))
	for {
		lease, err := pool.take(ctx, 1)
		if err != nil {
			return err
		}
		mod, err := s.amendIdle(ctx, e, st, []clientv3.Op{clientv3.OpPut(e.Record, text, clientv3.WithLease(lease.id))},
			func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == text })
		switch {
		case err == nil:
			return s.prolong(ctx, pool, lease, commit.Amending{Mod: mod}, kept{entry: e, text: text})
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			pool.forget(lease)
			continue
		case errors.Is(err, ErrConflict):
			pool.give(lease, false)
		}
		return err
	}
}

// keptUnknown returns for how long the store that has begun a request keeps it with an unknown outcome, which is no
// shorter than its Retain: the lease of the record shows it. It returns 0 if that has expired, and the record with it.
func (s *Store) keptUnknown(ctx context.Context, st state) (time.Duration, error) {
	call, done := commit.Call(ctx)
	defer done()
	resp, err := s.client.TimeToLive(call, clientv3.LeaseID(st.kv.Lease))
	if err != nil {
		return 0, err
	}
	return outlived(time.Duration(resp.GrantedTTL) * time.Second), nil
}

// Count returns the number of records in the store; an attempt in progress counts twice. It
// returns ErrClosed, an error of etcd's or ctx's.
func (s *Store) Count(ctx context.Context) (int64, error) { return s.countBelow(ctx, s.keys.Records()) }

// CountScope returns the number of records of one scope, which Options.MaxPerScope bounds; an
// attempt in progress counts twice. It returns ErrClosed, an error of etcd's or ctx's.
func (s *Store) CountScope(ctx context.Context, scope string) (int64, error) {
	return s.countBelow(ctx, s.keys.Scope(scope))
}

func (s *Store) countBelow(ctx context.Context, prefix string) (n int64, err error) {
	if err = s.closed(); err == nil {
		n, err = s.keysBelow(ctx, prefix)
	}
	return n, s.about(ctx, "count records", err)
}
