package conformance

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Store is the store under test.
type Store interface {
	// Open opens an instance of the store, for one process of a fleet, with a client of its
	// own. All instances with one prefix are one store, and write no key outside of it. If Open
	// returns an error, the promise has failed.
	Open(ctx context.Context, client *clientv3.Client, prefix string) (Instance, error)
	// Kind returns the kind of an error that Do has returned.
	Kind(err error) Kind
}

// Instance is the store of one process. It must be safe for concurrent use.
type Instance interface {
	// Do executes a request once, however often it is called: see Request. If there is no
	// value, it returns an error, whose kind Store.Kind returns. errors.Is finds an error of the
	// function in the error of Do; a panic of the function is a panic or an error of Do. For a
	// request with a setting that the store does not have, Do returns errors.ErrUnsupported, and
	// the promise is skipped.
	Do(ctx context.Context, r Request) (Answer, error)
	// Expire ends the claims of this instance's attempts, as etcd does if a process sends no
	// renewal for long enough. The instance is not informed. The client is another one than the
	// instance's, which may be cut off. Expire returns an error if the claims may exist.
	Expire(ctx context.Context, by *clientv3.Client) error
	// Close closes the instance; its client may be closed already. It returns an error if the
	// instance could not remove its state from etcd.
	Close(ctx context.Context) error
}

// Request is one call of Do.
type Request struct {
	Scope, Op, ID string // together the key
	Payload       string // with another payload, the same key is another request
	// Func does the work. Its context is the attempt's: it ends when the attempt is lost, and
	// not when the caller's does. Func may ignore it.
	Func func(ctx context.Context, a Attempt) (string, error)

	// Wait is at most how long the call waits for an attempt in progress; 0 is not at all. nil
	// is until the call's context is done.
	Wait     *time.Duration
	Refuse   bool          // after a lost attempt do not execute the request again
	Remember bool          // record an error of Func as the outcome
	Retain   time.Duration // how long the outcome is kept; at least a second
}

// Attempt is the attempt that a Func belongs to.
type Attempt interface {
	Attempt() int                   // 1 for the first attempt, and more after lost ones
	Token() int64                   // increases from attempt to attempt
	Guard() []clientv3.Cmp          // are true in etcd while the attempt is in progress
	ChildKey(purpose string) string // the same in all attempts; different for each purpose
	// Attach makes conditions and operations part of the Txn that records the outcome.
	Attach(ifs []clientv3.Cmp, then ...clientv3.Op)
	// Step calls fn and records its value; in later attempts it returns the recorded value
	// without a call. It returns an error if fn does, or if the value was not recorded.
	Step(name string, fn func(context.Context) (string, error)) (string, error)
}

// Answer is the result of Do.
type Answer struct {
	Value    string
	Replayed bool  // the value was recorded by another call
	Attempt  int   // number of the attempt that recorded it
	Token    int64 // of that attempt
}

// Kind is the kind of an error of Do.
type Kind int

// The kinds of errors.
const (
	Other       Kind = iota // the function's error, etcd's or a context's; or no error
	InProgress              // another attempt is in progress, and the call does not wait (longer)
	Mismatch                // the key was used with another payload
	Unknown                 // an attempt was lost, and the request does not execute again
	Failed                  // a failure was recorded
	Omitted                 // the request was done, and its result was not kept
	Fenced                  // another attempt has taken over: nothing was recorded
	Conflict                // a condition given to Attach is not met: nothing was recorded
	NotRecorded             // the function has returned; its outcome is still being recorded
	Invalid                 // the request is malformed
)

// String returns the kind in words.
func (k Kind) String() string {
	words := [...]string{"other", "in progress", "mismatch", "unknown", "failed", "omitted", "fenced", "conflict", "not recorded", "invalid"}
	if k < 0 || int(k) >= len(words) {
		return "no kind"
	}
	return words[k]
}
