package idempotency

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// The errors of this package, one for each decision that a caller can make. They are wrapped with
// the operation, the store and the request: compare with errors.Is. An error that matches none of
// these is the function's own, etcd's, or a ctx's; joined with concurrency.ErrUnavailable if etcd does not
// answer.
//
// ErrInvalid, ErrLost and ErrClosed are the same values as in package concurrency. ErrTooLong and the
// error types are this package's own: ErrTooLong does not match ErrLost. An attempt that is lost has no
// *concurrency.LostError as its cause, unless a permit was lost under which it ran: see Attempt.Context.
var (
	// ErrInvalid is concurrency.ErrInvalid: an argument or an option is wrong. Nothing was
	// written to etcd, except if Do's value cannot be recorded as JSON. Repeating the call does not
	// help.
	ErrInvalid = concurrency.ErrInvalid

	// ErrClosed is concurrency.ErrClosed: the session, or its client, is closed.
	ErrClosed = concurrency.ErrClosed

	// ErrInProgress: an attempt at the request is in progress, and the caller's Wait has
	// ended. It always comes as an *InProgressError.
	ErrInProgress = errors.New("request is in progress")

	// ErrMismatch: the key was used before with another payload, or by a process with another
	// Options.Secret, whose fingerprints no payload matches. A payload whose Go type has other members in
	// another release is another payload: see Begin. It always comes as a *MismatchError.
	ErrMismatch = errors.New("key was used with another payload")

	// ErrUnknown: it is not known what an attempt has done, since it was lost or has failed without
	// saying so, and the policy is Refuse: an operator has to call Resolve. It always comes as an
	// *UnknownError, which Do and Run join to the error of the function that has failed.
	ErrUnknown = errors.New("outcome is unknown")

	// ErrFailed: the request failed, and the failure was recorded. It always comes as a
	// *FailedError.
	ErrFailed = errors.New("request has failed before")

	// ErrOmitted: the request was done, and its result was not kept. It always comes as an
	// *OmittedError.
	ErrOmitted = errors.New("result was not kept")

	// ErrNearQuota: etcd has used more of its quota than Options.NearQuota, so no new request
	// begins. Replays continue.
	ErrNearQuota = errors.New("etcd is near its quota (Options.NearQuota)")

	// ErrScopeFull: the request's scope has as many records as Options.MaxPerScope allows, so
	// no new request of the scope begins. Other scopes, replays and duplicates continue. It
	// always comes as a *ScopeFullError.
	ErrScopeFull = errors.New("scope has too many records")

	// ErrUnseen: the request could not begin since etcd does not answer in time or is near its
	// quota (ErrNearQuota), and this call has seen nothing of the request, neither an attempt nor an
	// outcome. Nor is there an attempt of this Store whose end etcd does not have: one in progress, one
	// that was lost and whose function runs, or an outcome that could not be recorded yet; nor does a middleware's handler
	// run without a claim (FailOpen). What etcd had
	// once, this process may have forgotten (Options.CacheFor). It is joined with the reason. A caller
	// that prefers doing a request twice to not doing it may do it after this error, and after no other.
	// A call with Refuse does not get it: another process may have done the request.
	ErrUnseen = errors.New("nothing is known of the request")

	// ErrUnreadable: the record was not written by a release that this one can read, or its
	// result by a Codec that this Store does not have, or by a function with another result. The function does not run.
	ErrUnreadable = errors.New("record cannot be read")

	// ErrTooLarge: a recovery point, or a result given to Resolve, is larger than a record may
	// be.
	ErrTooLarge = errors.New("too large")

	// ErrConflict: a condition given to Attach is not met, and the attempt continues; or the
	// record that Delete or Resolve were to change has changed meanwhile, or has an outcome that
	// Resolve does not correct. Nothing was written; but after a lost answer of etcd's, what Delete or Resolve
	// wrote may have been replaced since, as the text says.
	ErrConflict = errors.New("conflict")

	// ErrNotRecorded: it is not certain that etcd has the outcome, or has it for the whole of
	// Retain. The outcome is still being written, in the background, and no other attempt begins
	// while the session lives. If etcd then refuses what was given to Attach, the attempt counts
	// as lost.
	ErrNotRecorded = errors.New("outcome is not recorded yet")

	// ErrFenced: this attempt is no longer the latest: another one has taken over, or the record
	// was resolved, deleted, or changed by hand. The outcome or the recovery point of this attempt was not written. It is
	// also the cause of its context then, unless that has ended before.
	ErrFenced = errors.New("another attempt has taken over")

	// ErrLost is concurrency.ErrLost: the attempt's session, or the lease of its record, was lost during the
	// attempt, so another attempt may take over, or begin.
	ErrLost = concurrency.ErrLost

	// ErrTooLong: the attempt's context ended because MaxExecution had passed.
	ErrTooLong = errors.New("attempt lasted too long")

	// ErrSettled: the attempt was ended before by Commit, Fail, Release or Abandon. It is also
	// the cause of its context then.
	ErrSettled = errors.New("attempt is settled")

	// ErrAlive: the process of a lost attempt lives, so it may still be working: the record was
	// neither deleted nor resolved as NotDone. Wait until the process has ended, or pass
	// EvenIfAlive.
	ErrAlive = errors.New("process of the attempt lives")

	// ErrNotFound: there is no record with this reference, or it has expired.
	ErrNotFound = errors.New("no such record")
)

// InProgressError names the attempt that is in progress.
type InProgressError struct {
	Key     Key
	Owner   string // the name of the attempt's session; empty if it is not known
	Attempt int    // the attempt's number; 0 if it is not known
	// RetryAfter is when it is worth repeating the request. If the attempt's session has missed
	// a renewal, it is the rest of the session's lease: its process may be dead, and no other
	// attempt can begin before the lease expires. Otherwise it is one second.
	RetryAfter time.Duration
}

// Error names the request, the attempt and its session.
func (e *InProgressError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("%v: %v", e.Key, ErrInProgress)
	}
	return fmt.Sprintf("%v: %v, attempt %d by %q", e.Key, ErrInProgress, e.Attempt, e.Owner)
}

// Is reports whether target is ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// MismatchError names a request whose key was used with another payload.
type MismatchError struct {
	Key      Key
	Finished bool // whether the request with the other payload has an outcome
	Also     bool // whether the payloads are equal, and only the second ones (AlsoCompare) differ
}

// Error names the request.
func (e *MismatchError) Error() string {
	if e.Also {
		return fmt.Sprintf("%v: %v: only what AlsoCompare was given differs", e.Key, ErrMismatch)
	}
	return fmt.Sprintf("%v: %v, or by a release whose payload has other members, or by a process with another Options.Secret (see OldSecrets)", e.Key, ErrMismatch)
}

// Is reports whether target is ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// ScopeFullError names a scope that has too many records.
type ScopeFullError struct {
	Key Key
	Max int // Options.MaxPerScope
	// RetryAfter estimates when a record of the scope will have expired, as if the records had
	// been made at equal intervals.
	RetryAfter time.Duration
}

// Error names the request and Options.MaxPerScope.
func (e *ScopeFullError) Error() string {
	return fmt.Sprintf("%v: %v: Options.MaxPerScope is %d", e.Key, ErrScopeFull, e.Max)
}

// Is reports whether target is ErrScopeFull.
func (e *ScopeFullError) Is(target error) bool { return target == ErrScopeFull }

// UnknownError names an attempt whose outcome is unknown.
type UnknownError struct {
	Key     Key
	Ref     Ref // for Resolve
	Owner   string
	Attempt int
	Note    string // for operators; it is not in the text of Error, which clients may get
}

// Error names the request, the attempt and the reference for Resolve.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("%v: %v: it is not known what attempt %d by %q has done (Store.Resolve %s)", e.Key, ErrUnknown, e.Attempt, e.Owner, e.Ref)
}

// Is reports whether target is ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// FailedError is a recorded failure.
type FailedError struct {
	Key     Key
	Outcome *Outcome
}

// Error names the request and has the text of the failure.
func (e *FailedError) Error() string {
	return fmt.Sprintf("%v: %v: %s", e.Key, ErrFailed, e.Outcome.Failure)
}

// Unwrap returns the failure as the function that has failed said it: with Permanent.
func (e *FailedError) Unwrap() error { return Permanent(errors.New(e.Outcome.Failure)) }

// Is reports whether target is ErrFailed.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

// OmittedError names a request that was done, and whose result was not kept.
type OmittedError struct {
	Key     Key
	Outcome *Outcome
}

// Error names the request.
func (e *OmittedError) Error() string { return fmt.Sprintf("%v: %v", e.Key, ErrOmitted) }

// Is reports whether target is ErrOmitted.
func (e *OmittedError) Is(target error) bool { return target == ErrOmitted }

func invalid(format string, args ...any) error { return engine.Invalid(format, args...) }
