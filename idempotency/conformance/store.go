package conformance

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Store is what is put to the test.
type Store interface {
	// Open opens an instance of the store, as one process of a fleet has it. It has the
	// client for itself. All instances with one prefix are one store, and write no key
	// that does not begin with it. It returns an error if it cannot be opened; the
	// promise has failed then.
	Open(ctx context.Context, client *clientv3.Client, prefix string) (Instance, error)
	// Kind tells what an error of Do says.
	Kind(err error) Kind
}

// Instance is a store as one process sees it. It is used concurrently.
type Instance interface {
	// Do does a request once, however often it is called: see Request. It returns
	// an error if there is no value to tell; Store.Kind tells them apart. An error of
	// the function comes back so that errors.Is finds it, a panic as a panic or as an
	// error. What cannot be done here ends with errors.ErrUnsupported, and the
	// promise is skipped.
	Do(ctx context.Context, r Request) (Answer, error)
	// Expire ends what keeps this instance's attempts in progress, as etcd does when
	// it has not heard from the process for long enough. The instance goes on: it may
	// find out, or not. The client is another one, since its own may be cut off. It
	// returns an error if that could not be done.
	Expire(ctx context.Context, by *clientv3.Client) error
	// Close ends the instance in good order, or, when its client is closed, what is left
	// of it in this process. It returns an error if it could not tell etcd.
	Close(ctx context.Context) error
}

// Request is one call.
type Request struct {
	Scope, Op, ID string // they make the key, all three
	Payload       string // another one with the same key is another request
	// Func does the work. Its context is the attempt's: it ends when the attempt is
	// lost, and not when the caller's does. It may return all the same when it likes.
	Func func(ctx context.Context, a Attempt) (string, error)

	Reject   bool          // fail if it is in progress, rather than wait
	Wait     time.Duration // wait for so long at most; 0: as long as ctx
	Refuse   bool          // after a lost attempt run nothing, rather than take over
	Remember bool          // an error of Func is the outcome, rather than none
	Retain   time.Duration // how long the outcome is kept; at least a second
}

// Attempt is what the function of a request is given.
type Attempt interface {
	Attempt() int                   // 1, and more after lost attempts
	Token() int64                   // rises from attempt to attempt
	Guard() clientv3.Cmp            // holds while the attempt's claim stands
	ChildKey(purpose string) string // the same in all attempts, another for each purpose
	// Attach has these conditions and operations be part of what records the outcome.
	Attach(ifs []clientv3.Cmp, then ...clientv3.Op)
	// Step calls fn and records its value; in later attempts it returns that. It
	// returns an error if fn does, or if the value was not recorded.
	Step(name string, fn func(context.Context) (string, error)) (string, error)
}

// Answer is what Do returns.
type Answer struct {
	Value    string
	Replayed bool  // this call has not called its function
	Attempt  int   // that has made the value
	Token    int64 // of that attempt
}

// Kind is what an error of Do says.
type Kind int

// The kinds of errors.
const (
	Other       Kind = iota // the function's own, etcd's or that of a ctx; or no error
	InProgress              // another attempt goes on, and the call does not wait (longer)
	Mismatch                // the key was used with another payload
	Unknown                 // an attempt was lost, and nothing is run
	Failed                  // a failure was remembered
	Omitted                 // done before, and its result was not kept
	Fenced                  // another attempt has taken over: nothing was recorded
	Conflict                // a condition given to Attach is not met: nothing was recorded
	NotRecorded             // the function has returned; its outcome is still being written
	Invalid                 // such a request cannot be
)

// String returns a word for it.
func (k Kind) String() string {
	words := [...]string{"other", "in progress", "mismatch", "unknown", "failed", "omitted", "fenced", "conflict", "not recorded", "invalid"}
	if k < 0 || int(k) >= len(words) {
		return "no kind"
	}
	return words[k]
}
