package idempotency

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// The errors of this package, one for each decision that a caller can make. They come
// wrapped with the store and the value in question: compare with errors.Is. An error that
// is none of these is the function's own, comes from etcd, or is the error of a ctx.
var (
	// ErrInvalid is concurrency.ErrInvalid: an argument or an option is wrong.
	// Nothing was written to etcd, but for a value of Do's without JSON; repeating does
	// not help.
	ErrInvalid = concurrency.ErrInvalid

	// ErrClosed is concurrency.ErrClosed: the session is closed, or its client is.
	ErrClosed = concurrency.ErrClosed

	// ErrInProgress: the request is being worked on, and the caller did not want to
	// wait (longer). Nothing is wrong. It always comes as an *InProgressError.
	ErrInProgress = errors.New("request is in progress")

	// ErrMismatch: the key was used before, with another payload. It always comes as
	// a *MismatchError.
	ErrMismatch = errors.New("key was used with another payload")

	// ErrUnknown: an attempt was lost before it has recorded an outcome, and the policy
	// is Refuse: somebody has to find out, and to Resolve. It always comes as an
	// *UnknownError.
	ErrUnknown = errors.New("outcome is unknown")

	// ErrFailed: the request has failed before, and that was remembered. It always
	// comes as a *FailedError.
	ErrFailed = errors.New("request has failed before")

	// ErrOmitted: the request was done before, and its result was not kept. It
	// always comes as an *OmittedError.
	ErrOmitted = errors.New("result was not kept")

	// ErrNearQuota: etcd has used more of its quota than Options.NearQuota, so no new request
	// begins. Replays continue.
	ErrNearQuota = errors.New("etcd is near its quota")

	// ErrScopeFull: the request's scope has as many records as Options.MaxPerScope allows, so
	// no new request of it is begun. Those of other scopes, replays and duplicates go on. It
	// always comes as a *ScopeFullError.
	ErrScopeFull = errors.New("scope has too many records")

	// ErrUnseen: the request could not begin since etcd does not answer in time or is near its
	// quota (ErrNearQuota), and this call has seen nothing of the request, neither an attempt nor an
	// outcome. It is joined with the reason. A caller that prefers doing a request twice to not
	// doing it may do it after this error, and after no other.
	ErrUnseen = errors.New("nothing is known of the request")

	// ErrUnreadable: what stands at the key was not written by a release that this one
	// can read, or its result by a Codec that it does not have. Nothing is run.
	ErrUnreadable = errors.New("record cannot be read")

	// ErrTooLarge: a recovery point, or a result given to Resolve, is bigger than a record
	// may be.
	ErrTooLarge = errors.New("too large")

	// ErrConflict: a condition given to Attach is not met, and the attempt continues; or the
	// record that Delete or Resolve were to change is another by now, or has an outcome. Nothing
	// was written.
	ErrConflict = errors.New("conflict")

	// ErrNotRecorded: the function has returned, and its outcome is not in etcd yet,
	// or not for certain, or not for the whole of Retain. It is still being written, in the
	// background, and the key is not given free meanwhile. If what was given to Attach is
	// refused at last, the attempt counts as lost.
	ErrNotRecorded = errors.New("outcome is not recorded yet")

	// ErrFenced: the attempt is not the latest any more: another has taken over, or the
	// record was resolved or deleted. What it wanted to write was not written.
	ErrFenced = errors.New("another attempt has taken over")

	// ErrLost is concurrency.ErrLost: the attempt's session was lost while it went on,
	// so another may take over.
	ErrLost = concurrency.ErrLost

	// ErrTooLong: the attempt's context ended because MaxExecution had passed.
	ErrTooLong = errors.New("attempt ran too long")

	// ErrSettled: the attempt has ended by Commit, Fail, Release or Abandon. It is the
	// cause of its context then, and what a second such call returns.
	ErrSettled = errors.New("attempt is settled")

	// ErrNotFound: there is no such record, or no more.
	ErrNotFound = errors.New("no such record")
)

// InProgressError says who works on the request.
type InProgressError struct {
	Key     Key
	Holder  string // the session's name; empty if it is not known
	Attempt int    // its number; 0 if it is not known
	// RetryAfter is when it is worth asking again. If the session of the attempt has missed a
	// renewal, so that its process may be gone, it is the rest of its lease: no other attempt
	// can begin before. Otherwise it is a guess, of a second.
	RetryAfter time.Duration
}

// Error names the holder.
func (e *InProgressError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("%v: %v", e.Key, ErrInProgress)
	}
	return fmt.Sprintf("%v: %v, attempt %d by %q", e.Key, ErrInProgress, e.Attempt, e.Holder)
}

// Is tells that an InProgressError is an ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// MismatchError says that another request has the same key.
type MismatchError struct {
	Key      Key
	Finished bool // whether that one has an outcome
}

// Error names scope and operation.
func (e *MismatchError) Error() string { return fmt.Sprintf("%v: %v", e.Key, ErrMismatch) }

// Is tells that a MismatchError is an ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// ScopeFullError says which scope has too many records.
type ScopeFullError struct {
	Key Key
	Max int // Options.MaxPerScope
	// RetryAfter is when a record of the scope will have gone, if records came evenly. It is
	// a guess.
	RetryAfter time.Duration
}

// Error names scope, bound and option.
func (e *ScopeFullError) Error() string {
	return fmt.Sprintf("%v: %v: Options.MaxPerScope is %d", e.Key, ErrScopeFull, e.Max)
}

// Is reports whether target is ErrScopeFull.
func (e *ScopeFullError) Is(target error) bool { return target == ErrScopeFull }

// UnknownError says which attempt was lost.
type UnknownError struct {
	Key     Key
	Ref     Ref // for Resolve
	Holder  string
	Attempt int
}

// Error names the attempt that was lost.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("%v: %v: attempt %d by %q was lost (%s)", e.Key, ErrUnknown, e.Attempt, e.Holder, e.Ref)
}

// Is tells that an UnknownError is an ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// FailedError is a failure that was remembered.
type FailedError struct {
	Key     Key
	Outcome *Outcome
}

// Error has the text of the failure.
func (e *FailedError) Error() string {
	return fmt.Sprintf("%v: %v: %s", e.Key, ErrFailed, e.Outcome.Failure)
}

// Is tells that a FailedError is an ErrFailed.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

// OmittedError says that a request was done and its result not kept.
type OmittedError struct {
	Key     Key
	Outcome *Outcome
}

// Error names scope and operation.
func (e *OmittedError) Error() string { return fmt.Sprintf("%v: %v", e.Key, ErrOmitted) }

// Is tells that an OmittedError is an ErrOmitted.
func (e *OmittedError) Is(target error) bool { return target == ErrOmitted }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
