package idempotency

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/life"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Attempt is one execution of a request. Its owner does the work under the attempt's context, and
// then calls Commit, Fail, Release or Abandon. It is safe for concurrent use.
//
// A nil Attempt, as Begin returns it beside an Outcome, executes nothing: all that returns an error returns ErrInvalid, its
// context has ended, its guard is never met, Certain reports false, and its key, numbers and times are zero. Only Attach
// panics, since an operation would be lost without an error.
type Attempt struct {
	claim
	token    int64
	ctx      attemptCtx // that life derives its context from
	life     life.Life
	on       place // on its ground
	own      ownRecord
	settling settling
	calls    calls // outside of steps
	names    stepNames
	seen     *execution // with hooks
	once     bool       // the policy is Refuse, or that of an attempt around this one
	// A request that runs without a claim: see unclaimedRun. It is no attempt, and has the keys of one.
	unclaimed bool
}

// claimed reports whether a is an attempt.
func claimed(a *Attempt) bool { return a != nil && !a.unclaimed }

// start starts the attempt and its clocks. Its context has the values of the caller's.
func (a *Attempt) start(outer context.Context, token int64) {
	a.token, a.own.claim = token, &a.claim
	a.own.set(a.begun, token)
	around := attemptOf(outer)
	a.once = a.begun.Refuse || around != nil && around.once
	work, seen := execute(outer, a)
	a.seen = seen
	a.ctx = attemptCtx{context.WithoutCancel(work), a}
	a.life.Begin(&a.ctx, a.epoch, (*ending)(a))
	a.flight.markHere(a.Attempt())
	_ = a.life.Bound(time.Now().Add(a.set.MaxExecution))
	if a.seen != nil {
		context.AfterFunc(a.Context(), func() { a.seen.overAt.Store(int64(time.Since(a.seen.begun))) })
	}
	a.epoch.add(a)
}

// attemptCtx is a context with the values of the caller's ctx and the attempt, which does not end.
type attemptCtx struct {
	context.Context
	attempt *Attempt
}

// Value implements context.Context.
func (c *attemptCtx) Value(key any) any {
	if key == (attemptKey{}) {
		return c.attempt
	}
	return c.Context.Value(key)
}

// ending is an attempt as the handle of its life.
type ending Attempt

// LostCause implements life.Handle.
func (e *ending) LostCause() error { return (*Attempt)(e).lostWithSession() }

// LateCause implements life.Handle.
func (e *ending) LateCause() error { return (*Attempt)(e).late() }

// Ended implements life.Handle.
func (e *ending) Ended(cause error) { (*Attempt)(e).overdue(cause) }

// Context returns the attempt's context. It ends, with a cause, when the session or the lease of the record is lost
// (ErrLost), when etcd refuses a write of the attempt (ErrFenced), when the session is closed (ErrClosed), after MaxExecution
// (ErrTooLong), and when the attempt is settled (ErrSettled).
// It does not end with the caller's ctx: a client that disconnects does not stop its request. But while the function of Do
// or Run is called, it ends when a permit or a run of a job is lost under which the ctx of Do or Run runs, with the *concurrency.LostError
// or the run's error: other work may have the permit then, or run the job. The release of a permit and the end of a run do not
// end it, so work may continue after that, in a goroutine of its own. The attempt keeps its claim, so what the function returns can still be recorded.
func (a *Attempt) Context() context.Context {
	if !claimed(a) {
		return noContext
	}
	return a.life.Context()
}

// noContext is the context of a nil Attempt.
var noContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(none("use"))
	return ctx
}()

// Deadline returns when the attempt's context ends at the latest, as things are: after MaxExecution,
// or when the lease of the session, or that of the record, is no longer trusted. Each renewal of these moves the latter.
func (a *Attempt) Deadline() time.Time {
	if !claimed(a) {
		return time.Time{}
	}
	return a.life.Deadline()
}

// Key returns the request's key.
func (a *Attempt) Key() Key {
	if !claimed(a) {
		return Key{}
	}
	return a.key
}

// Ref returns the reference of the request's record, for operators: Store.Get, Resolve and Delete.
func (a *Attempt) Ref() Ref {
	if !claimed(a) {
		return ""
	}
	return Ref(a.entry.Ref)
}

// SetNote replaces the note of the request, once the work knows what an operator needs, such as the
// number of the order that it has made: see the option Note. It costs one Txn, as a Step does. It returns
// ErrFenced, ErrSettled, the cause of the attempt's context if it has ended before or ends since its lease is gone, or an
// error of etcd's. With ErrFenced, the attempt's context ends.
func (a *Attempt) SetNote(text string) error {
	if !claimed(a) {
		return none("set note of")
	}
	text = record.Note(text)
	return a.about("set note of", a.rewrite(func(r *record.Attempt) error { r.Note = text; return nil }))
}

// rewrite changes the record of the attempt in progress.
func (a *Attempt) rewrite(change func(*record.Attempt) error) (err error) {
	if err = a.lock(); err != nil {
		return err
	}
	defer func() { err = a.lost(err) }() // after unlock, for a hook that writes the record
	defer a.own.turn.free()
	return a.own.change(a.Context(), change)
}

// lock takes the right to write the record. It fails once the attempt is being settled.
func (a *Attempt) lock() error {
	if !a.lockUntil(a.Context()) {
		return a.Err()
	}
	err := a.settling.open()
	if err != nil {
		a.own.turn.free()
	}
	return err
}

// lockUntil takes that right, and reports whether it has before ctx has ended.
func (a *Attempt) lockUntil(ctx context.Context) bool {
	return ctx.Err() == nil && a.own.turn.take(ctx)
}

// none is the error of a call of a nil Attempt.
func none(attempted string) error {
	return fmt.Errorf("idempotency: %s an attempt: %w", attempted,
		invalid("there is none: Begin has returned an Outcome to replay in its place, or the request runs without a claim (FromContext returns false)"))
}

// about wraps an error with what was attempted.
func (a *Attempt) about(attempted string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("idempotency: %s %v in store %q: %w", attempted, a.key, a.store.name, err)
}

// Attempt returns the number of this attempt at the request: 1 for the first one, and one more after
// each attempt that was lost or whose function has failed.
func (a *Attempt) Attempt() int {
	if !claimed(a) {
		return 0
	}
	return a.begun.Number
}

// Token returns the attempt's fencing token, a revision of etcd. It rises from attempt to attempt at
// the request: a resource that refuses tokens below the greatest one it has seen is safe from
// earlier attempts. Attempts at two requests may have the same token.
func (a *Attempt) Token() int64 {
	if !claimed(a) {
		return 0
	}
	return a.token
}

// Guard returns the conditions for a Txn of the caller's own: the Txn takes effect only while the attempt is in progress
// and its session exists, whatever the clocks do. The client of the Txn must use the same key
// namespace as the session's client. A Txn without an operation is answered by one member of etcd,
// which may be behind: give it a Then.
func (a *Attempt) Guard() []clientv3.Cmp {
	if !claimed(a) {
		return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(keyspace.DefaultPrefix), "<", 0)}
	}
	// What a record begins with is the attempt's own, and does not change before its end. The record outlives the session.
	is, prefix := clientv3.Value(a.entry.Record), a.begun.Prefix()
	return []clientv3.Cmp{
		clientv3.Compare(is, ">", prefix), clientv3.Compare(is, "<", clientv3.GetPrefixRangeEnd(prefix)),
		clientv3.Compare(clientv3.CreateRevision(a.store.reader.presence(a.begun.Lease)), "=", a.epoch.Fence().Born()),
	}
}

// ChildKey returns an idempotency key for a call to another service that executes calls once by their
// key. It is the same in all attempts at the request with the same payload, and differs for each
// purpose and each payload: if the request's key is used with another payload after its record has
// expired, the service does not mistake the new request for the old one. Secret and AlsoCompare do
// not count. A child key discloses neither the request's key nor its payload. A request that runs without a claim under
// FailOpen has the child keys of an attempt. ChildKey of a nil Attempt, as of a request without a key (Optional), is a new
// random key each time. When to use it, and when idemhttp.Transport:
// see "Keys for other services" in the package's comment.
func (a *Attempt) ChildKey(purpose string) string {
	if a == nil {
		return rand.Text()
	}
	h := sha256.New()
	fmt.Fprintf(h, "etcdkit child key 2\n%s\n%s\n%d %s\n%x\n%d %s", a.store.keys.Range, a.entry.Ref, len(a.key.ID), a.key.ID, a.child, len(purpose), purpose)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:24])
}

// Err returns nil until the attempt's context ends, and then its cause: ErrLost, ErrFenced, ErrClosed,
// ErrTooLong or ErrSettled, or the *concurrency.LostError of a permit. It reads the clocks itself, so it is right after a
// pause of the process even if no timer has fired yet.
func (a *Attempt) Err() error {
	if !claimed(a) {
		return none("check")
	}
	if err := a.life.Err(); err != nil {
		return err
	}
	return context.Cause(a.Context()) // of Interrupt
}

// interrupted returns why the attempt's context has ended, if it ended before the attempt was settled.
func (a *Attempt) interrupted() error {
	if err := a.Err(); !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// uninterrupted reports whether the attempt's context has ended because the attempt was settled, and for no earlier cause.
func (a *Attempt) uninterrupted() bool { return errors.Is(context.Cause(a.Context()), ErrSettled) }

// endFlight ends the wait of duplicates in this process, and of Close.
func (a *Attempt) endFlight(outcome *Outcome) {
	a.store.flights.end(a.entry.Ref, a.flight, outcome, false)
	a.leave()
}

// Attach adds conditions and operations to the Txn that records the outcome, when Commit or Fail
// is called or Do's function returns a value: the operations take effect if and only if that
// outcome is recorded. They must not concern keys of the store. If the function of Do or Run returns
// an error or panics, they are dropped, also if the failure is recorded. While etcd denies one of them, because the role does not cover its
// key, the outcome is written again, for five seconds, and then Commit returns ErrInvalid; Do has returned
// ErrNotRecorded by then, and its attempt is lost. Attach of a nil Attempt panics.
func (a *Attempt) Attach(ifs []clientv3.Cmp, then ...clientv3.Op) {
	if !claimed(a) {
		panic(none("attach to"))
	}
	a.settling.attach(ifs, then)
}

// Detach drops what was given to Attach so far. It is for a caller of Run whose function records a
// failure as its result.
func (a *Attempt) Detach() {
	if claimed(a) {
		a.settling.detach()
	}
}

type attemptKey struct{}

// attemptOf returns the attempt whose context ctx is or is derived from, also one of a request that runs without a claim, or
// nil.
func attemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// FromContext returns the attempt whose context ctx is or is derived from. ok is false if there is
// none: behind a middleware, for a request that runs without a claim (Optional without a key, FailOpen
// without etcd). Of the methods of the attempt that is returned then, only ChildKey does what it is for; the others do what
// they do for a nil Attempt, which it may be.
func FromContext(ctx context.Context) (a *Attempt, ok bool) {
	a = attemptOf(ctx)
	return a, claimed(a)
}

// Refuses reports whether ctx belongs to an attempt whose policy is Refuse, or to one within such an attempt:
// what its function does is not to be repeated by a layer below, such as the Transport of net/http.
func Refuses(ctx context.Context) bool {
	a := attemptOf(ctx)
	return a != nil && a.once
}

// Within reports whether ctx belongs to an attempt at the request with that key, in the store s or in
// another Store of its name, that has not ended, or to such a run of the request without a claim, or to an attempt at another
// request within it. It is for middleware: a second one of the store has nothing to begin.
func Within(ctx context.Context, s *Store, key Key) bool {
	for a := attemptOf(ctx); a != nil; a = attemptOf(a.ctx.Context) {
		if a.store.keys.Range == s.keys.Range && a.key == key && (a.unclaimed && a.store.away.runs(a) || claimed(a) && a.life.Err() == nil) {
			return true
		}
	}
	return false
}

// lostError is the cause of an attempt's context after its session was lost.
type lostError struct {
	text  string
	cause error
}

func (e *lostError) Error() string        { return e.text }
func (e *lostError) Unwrap() error        { return e.cause }
func (e *lostError) Is(target error) bool { return target == ErrLost }
