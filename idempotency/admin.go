package idempotency

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Ref tells one key of a store from all others, and nothing of it: it is a hash.
type Ref string

// Ref returns the reference of a key.
func (s *Store) Ref(key Key) Ref { return Ref(s.keys.Entry(key.Scope, key.Op, key.ID).Ref) }

// State is how a request stands.
type State int

// The states of a request.
const (
	InProgress State = iota + 1 // somebody works on it
	Done                        // its result is recorded
	Failed                      // its failure is
	Unknown                     // its attempt was lost
	Released                    // it was given back, with its recovery points
	Unreadable                  // its record cannot be read
)

// String returns a word for it.
func (s State) String() string {
	words := [...]string{"", "in progress", "done", "failed", "unknown", "released", "unreadable"}
	if s < 1 || int(s) >= len(words) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return words[s]
}

// Record is what an operator sees of a request. Times are by the clock of the process that
// wrote them. Its JSON leaves out a time that is zero.
type Record struct {
	Ref      Ref
	State    State
	Scope    string
	Op       string
	Attempt  int
	Token    int64     // 0 while it goes on
	Holder   string    // the session that has made the attempt
	Started  time.Time `json:",omitzero"` // zero if it is not known
	Ended    time.Time `json:",omitzero"` // zero if no outcome was recorded
	Failure  string
	Bytes    int // of the result as stored
	Omitted  bool
	Refuse   bool   // it was begun with the policy Refuse
	Resolved string // by whom, if somebody has resolved it by hand
	Revision int64  // at which it was written
}

// String returns one line for people, without the result.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v", r.Ref, r.State)
	if r.State != Unreadable {
		fmt.Fprintf(&b, ": %q/%q, attempt %d by %q", r.Scope, r.Op, r.Attempt, r.Holder)
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

// Get returns the record of a key and, if it is finished, its outcome. It returns
// ErrNotFound, ErrInvalid if the reference is none, ErrUnreadable with the Record if the
// outcome cannot be read, ErrClosed, ctx's error or one of etcd's.
func (s *Store) Get(ctx context.Context, ref Ref) (Record, *Outcome, error) {
	e, st, err := s.lookUp(ctx, ref)
	if err != nil {
		return Record{}, nil, err
	}
	r := describe(e, st)
	if !st.finished() {
		return r, nil, nil
	}
	rec, err := s.load(ctx, e, st)
	if err == nil && rec == nil {
		err = ErrNotFound // it expires just now
	}
	if err != nil {
		err = fmt.Errorf("get %s: %w", ref, s.explain(err))
	}
	return r, rec, err
}

// closed returns ErrClosed once the session is closed: what it wrote then would
// hang on leases that nobody looks after.
func (s *Store) closed() error {
	if s.sess.Context().Err() != nil {
		return ErrClosed
	}
	return nil
}

func (s *Store) lookUp(ctx context.Context, ref Ref) (keyspace.Entry, state, error) {
	e, ok := s.keys.Ref(string(ref))
	if !ok {
		return e, state{}, invalid("store %q: %q is no reference", s.name, string(ref))
	}
	if err := s.closed(); err != nil {
		return e, state{}, fmt.Errorf("store %q: %s: %w", s.name, ref, err)
	}
	st, err := s.read(ctx, e, true)
	if err == nil && st.kv == nil {
		err = ErrNotFound
	}
	if err != nil {
		return e, st, fmt.Errorf("store %q: %s: %w", s.name, ref, s.explain(because(ctx, err)))
	}
	return e, st, nil
}

// Delete forgets a request, be it finished, unknown or unreadable: the next call does it
// again. Processes that have its outcome in their caches replay it for CacheFor yet. It
// returns ErrInProgress, as an *InProgressError, while somebody works on it; ErrNotFound,
// ErrInvalid, ErrClosed, ErrConflict if it has changed meanwhile, ctx's error or one of
// etcd's; after the last two it may be deleted or not.
func (s *Store) Delete(ctx context.Context, ref Ref) error {
	e, st, err := s.lookUp(ctx, ref)
	if err != nil {
		return err
	}
	_, err = s.amendIdle(ctx, e, st, []clientv3.Op{clientv3.OpDelete(e.Record), clientv3.OpDelete(e.AllResults(), clientv3.WithPrefix())},
		func(kv *mvccpb.KeyValue) bool { return kv == nil })
	return err
}

// amendIdle changes the record of a request that has no attempt in progress. It returns the
// revision of the change.
func (s *Store) amendIdle(ctx context.Context, e keyspace.Entry, st state, then []clientv3.Op, mine func(*mvccpb.KeyValue) bool) (int64, error) {
	fail := func(err error) (int64, error) { return 0, fmt.Errorf("store %q: %s: %w", s.name, e.Ref, err) }
	if st.claim {
		return fail(&InProgressError{Key: Key{Scope: st.rec.Scope, Op: st.rec.Op}, Holder: st.rec.Holder, Attempt: st.rec.Number, RetryAfter: s.retryAfter(ctx, st.rec.Lease)})
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
		return fail(s.explain(because(ctx, err)))
	case res.Outcome == commit.Amended:
		s.saw(res.Mod, sent) // so no member that lags behind is believed here
		return res.Mod, nil
	}
	return fail(fmt.Errorf("%w: the record has changed meanwhile", ErrConflict))
}

// Resolution is what an operator has found out about a request whose attempt was lost: WasDone,
// HasFailed or NotDone.
type Resolution struct {
	state string // of the record; "" is none of the three
	value []byte
	text  string
}

// WasDone resolves that the request was done, with that result: JSON for Do, the bytes of
// Response.Encode for idemhttp, those of Encode for idemgrpc.
func WasDone(result []byte) Resolution { return Resolution{state: record.AttemptDone, value: result} }

// HasFailed resolves that it has failed, and is not to be tried again. The failure is
// stored as it is, whatever the Codec.
func HasFailed(failure string) Resolution {
	return Resolution{state: record.AttemptFailed, text: failure}
}

// NotDone resolves that nothing was done: the next call does it. The recovery points are
// kept.
func NotDone() Resolution { return Resolution{state: record.AttemptReleased} }

// Resolve says what became of a request whose outcome is Unknown. It returns ErrInProgress,
// as an *InProgressError, if somebody works on it; ErrConflict if its outcome is known or
// changes meanwhile; ErrNotFound, ErrInvalid, ErrTooLarge for a result of more than
// 128 KiB, ErrUnreadable, ErrClosed, ctx's error or one of etcd's; after the last two it may be
// resolved or not.
func (s *Store) Resolve(ctx context.Context, ref Ref, what Resolution) error {
	if what.state == "" {
		return invalid("store %q: %s: the Resolution is none of WasDone, HasFailed and NotDone", s.name, ref)
	}
	e, st, err := s.lookUp(ctx, ref)
	if err != nil {
		return err
	}
	switch {
	case st.bad:
		return fmt.Errorf("store %q: %s: %w", s.name, ref, ErrUnreadable)
	case !st.lost() && !st.claim:
		return fmt.Errorf("store %q: %s: %w: the request is %v", s.name, ref, ErrConflict, describe(e, st).State)
	}
	r := st.rec
	r.State, r.EndMS, r.By, r.Token = what.state, time.Now().UnixMilli(), s.sess.Holder(), st.mod()
	if r.State != record.AttemptReleased {
		stored, codec, err := s.encode(what.value, about(e))
		if err != nil {
			return err
		}
		if len(stored) > inline {
			return fmt.Errorf("store %q: %s: %w: %d bytes", s.name, ref, ErrTooLarge, len(stored))
		}
		r.Body, r.Codec, r.Size, r.Error = stored, codec, len(stored), record.Text(what.text)
	}
	text := r.Encode()
	pool := s.retain(s.opts.Retain)
	lease, err := pool.take(ctx, 1)
	if err != nil {
		return fmt.Errorf("store %q: %s: %w", s.name, ref, s.explain(because(ctx, err)))
	}
	mod, err := s.amendIdle(ctx, e, st, []clientv3.Op{clientv3.OpPut(e.Record, text, clientv3.WithLease(lease.id))},
		func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == text })
	if err != nil {
		return err
	}
	if err := s.prolong(ctx, pool, lease, commit.Amending{Mod: mod}, kept{entry: e, text: text}); err != nil {
		return fmt.Errorf("store %q: %s: %w", s.name, ref, because(ctx, err))
	}
	return nil
}

// Count returns the number of records in the store; an attempt in progress counts twice. It
// returns ErrClosed, an error of etcd's or ctx's.
func (s *Store) Count(ctx context.Context) (int64, error) { return s.countBelow(ctx, s.keys.Records()) }

// CountScope returns the number of records of one scope, which Options.MaxPerScope bounds; an
// attempt in progress counts twice. It returns ErrClosed, an error of etcd's or ctx's.
func (s *Store) CountScope(ctx context.Context, scope string) (int64, error) {
	return s.countBelow(ctx, s.keys.Scope(scope))
}

func (s *Store) countBelow(ctx context.Context, prefix string) (int64, error) {
	if err := s.closed(); err != nil {
		return 0, fmt.Errorf("count store %q: %w", s.name, err)
	}
	n, err := s.keysBelow(ctx, prefix)
	if err != nil {
		return 0, fmt.Errorf("count store %q: %w", s.name, s.explain(because(ctx, err)))
	}
	return n, nil
}
