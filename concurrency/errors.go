package concurrency

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/entry"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/share"
)

// The errors of this package, one for each decision that a caller can make. They
// come wrapped with the name and the value in question: compare with errors.Is.
// An error that is none of these comes from etcd, as its client returned it, or
// is the error of a ctx, which is always joined and never masked. ErrInvalid, ErrLost,
// ErrClosed, ErrUnconfirmed and ErrUnavailable are the same values in schedlock and
// idempotency where those have them; ErrTooLong and the error types are this package's own.
var (
	// ErrInvalid: an argument, an option or a combination of them is wrong.
	// Nothing was written to etcd. A repetition fails as well, except that a Weight above a limit that was lowered
	// is valid again once that is raised.
	ErrInvalid = engine.ErrInvalid

	// ErrFull: no permit is free, and the call does not wait, or its Wait has passed. etcd
	// answers. It always comes as a *FullError.
	ErrFull = errors.New("no permit is free")

	// ErrUnavailable: a wait for a permit has ended while etcd did not answer, so it
	// is not known whether one is free. It always comes as an *UnavailableError. If ctx ended
	// the wait, it is joined with ctx's error, and comes only if a request has failed, or etcd
	// had not answered for half a second: with a shorter deadline ctx's error may be alone.
	ErrUnavailable = outage.ErrUnavailable

	// ErrHeld: a live request has the caller's ID already. It always comes as a
	// *HeldError, which names its owner.
	ErrHeld = errors.New("ID is in use")

	// ErrLimitMismatch: the limit stored in etcd differs from the one that this program
	// passed to NewSemaphore: see there for when they are compared. It always comes as a
	// *LimitMismatchError, or, of a rate, as a *RateMismatchError.
	ErrLimitMismatch = errors.New("the stored limit differs")

	// ErrNoLimit: SetLimit found no limit to change and no request under that name.
	// Nothing was written. If the name is right, pass CreateLimit.
	ErrNoLimit = limit.ErrNone

	// ErrLost: a permit ended before its holder released it: its session's lease is lost,
	// or its key was deleted. A permit that ended with ErrTooLong, ErrEvicted or ErrClosed
	// matches ErrLost as well.
	ErrLost = engine.ErrLost

	// ErrTooLong: a permit ended because MaxHold had passed.
	ErrTooLong = errors.New("permit was held too long")

	// ErrEvicted: a request or permit was ended by Evict or TakeOver.
	ErrEvicted = errors.New("evicted")

	// ErrReleased: a permit ended because it was released, by its holder or by
	// ReleaseID. It is no loss and does not match ErrLost.
	ErrReleased = errors.New("permit is released")

	// ErrUnconfirmed: a permit was valid when it was released, but etcd has not
	// confirmed the release. It is no loss and does not match ErrLost. It always
	// comes as an *UnconfirmedError, from Permit.Release; Do and Lead do not return it.
	ErrUnconfirmed = errors.New("release is not confirmed")

	// ErrClosed: the session is closed, or its client is.
	ErrClosed = engine.ErrClosed

	// ErrStepDown: the holder of a permit or a term was requested to release it. It has not
	// ended. It always comes as a *StepDownError, as the cause of a context.
	ErrStepDown = errors.New("requested to step down")

	// ErrNotHeld: no live request has this ID or token.
	ErrNotHeld = queue.ErrNotHeld

	// ErrTooMany: this session has as many live requests as SessionOptions.MaxPermits
	// allows, or a KeyedLimiter as many live keys as KeyedLimiterOptions.MaxKeys allows. If
	// MaxPermits is reached only because ended requests are still being removed from etcd, the
	// call first waits for their removal, at most 5 s.
	ErrTooMany = engine.ErrTooMany
)

// FullError says how full a queue was when a call was refused, as far as this process
// knew. It is returned only if etcd has answered the session within about the last two
// seconds; otherwise the call returns an *UnavailableError. errors.Is matches it with
// ErrFull.
type FullError struct {
	Name  string // of the queue
	Limit int    // in force then; 0 if it is paused
	// Used is the weight of the holders. It is 0 as well where etcd has not shown the queue, as Error says then: that a
	// paused queue has no holders is what Status shows. Where counts decide, in the total of a KeyedLimiter that
	// admits more than 256 requests, and for a request far back in its queue, it is at most Limit: holders above a limit that was lowered are
	// part of Waiting.
	Used    int
	Waiting int // number of other waiting requests
	// Level says, for the key of a KeyedLimiter, which limit refused the request. It is LevelTotal if
	// the total is full, or if the key is full only because a request that is admitted there waits
	// for the total; the other fields are then those of the total. It is LevelKey if etcd has not shown
	// the queue of the key in time. It is empty for a Semaphore without a limiter, a Mutex and an
	// Election.
	Level Level
	// RetryAfter estimates when a permit may be free for this call, by how many requests wait and by
	// how long permits of the limiter were held in this process. 0 means that it is unknown.
	RetryAfter time.Duration

	unseen bool // etcd has not shown the queue before the call ended
	paused bool // but that the limit is 0
}

// Error has the counts, or the limit if no others are known. The error of the call has the
// name before it, and after it the option that has bounded the wait: Wait, MaxWaiters or
// KeyedLimiterOptions.MaxTotalWaiters. The command looks for parts of it (exit/explain.go).
func (e *FullError) Error() string { return fmt.Sprintf("%v: %s", ErrFull, e.counts()) }

// counts says what is known of the queue.
func (e *FullError) counts() string {
	switch {
	case e.paused:
		return "limit 0 (SetLimit resumes); etcd has not shown the queue in time"
	case e.unseen && e.Limit == 0:
		return "etcd has not shown the queue in time"
	case e.unseen:
		return fmt.Sprintf("limit %d; etcd has not shown the queue in time", e.Limit)
	case e.Limit == 0:
		return fmt.Sprintf("limit 0 (SetLimit resumes), %d in use, %d waiting", e.Used, e.Waiting)
	}
	return fmt.Sprintf("%d of %d in use, %d waiting", e.Used, e.Limit, e.Waiting)
}

// isPaused reports whether the limit is known to be 0.
func (e *FullError) isPaused() bool { return e.paused || e.Limit == 0 && !e.unseen }

// Is reports whether target is ErrFull, or, for the middlewares, whether etcd has not shown why no permit is free.
func (e *FullError) Is(target error) bool {
	return target == ErrFull || e.unseen && !e.paused && target == share.ErrUnseen
}

// UnavailableError says since when etcd has not answered a call that waited for a permit.
// errors.Is matches it with ErrUnavailable and with Err. It matches
// context.DeadlineExceeded only if the caller's own ctx has ended, not if Wait has.
type UnavailableError struct {
	// Since is when the first request was sent that etcd has not answered, or LastAnswer if
	// that is later.
	Since      time.Time
	LastAnswer time.Time // when etcd last answered the session
	// Err is the last error of etcd's or of the connection. It is nil if there was no
	// answer at all.
	Err error
	// Seen is how full the queue was when the session last saw it, no later than
	// LastAnswer. It is nil if the call was not in the queue yet, or etcd has not shown the queue. For the
	// key of a KeyedLimiter, Seen.Level is the level whose queue the call waited in.
	Seen *FullError
}

// Error says since when etcd has not answered, or what it refuses the session, and what was last seen.
func (e *UnavailableError) Error() string {
	const layout = "2006-01-02T15:04:05.000Z07:00"
	s := fmt.Sprintf("%v: no answer since %s, last answer at %s", ErrUnavailable, e.Since.Format(layout), e.LastAnswer.Format(layout))
	if commit.Denied(e.Err) {
		s = fmt.Sprintf("etcd refuses the session, last at %s", e.LastAnswer.Format(layout))
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Seen != nil {
		of := ""
		if e.Seen.Level != "" {
			of = " of the " + string(e.Seen.Level)
		}
		s += fmt.Sprintf("; the queue%s then had %s", of, e.Seen.counts())
	}
	return s
}

// Unwrap returns Err.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Is reports whether target is ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// HeldError says that a live request with the caller's ID exists. errors.Is matches it with
// ErrHeld.
type HeldError struct {
	Name    string // of the queue
	ID      string
	Request Request // that has the ID
}

// Error names the ID and its owner.
func (e *HeldError) Error() string {
	return fmt.Sprintf("ID %q is in use by %s (token %d); TakeOver would evict it", e.ID, e.Request.Owner, e.Request.Token)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LimitMismatchError says that a semaphore's limit in this program differs from the one
// stored in etcd. Either the program's configuration is out of date, or the stored limit is
// to be changed with SetLimit; SemaphoreOptions.AdoptLimit accepts the stored one as it is.
// errors.Is matches it with ErrLimitMismatch.
type LimitMismatchError struct {
	Name   string
	Level  Level // of a KeyedLimiter: LevelKey for its default limit, or LevelTotal
	Stored int   // 0 also if a limiter has no total in etcd
	Wanted int   // 0 also if it has none in this program
}

// Error names both limits, and what would make them agree.
func (e *LimitMismatchError) Error() string {
	switch {
	case e.Level == LevelTotal && e.Wanted == 0:
		return fmt.Sprintf("the limiter has a total of %d in etcd and none in this program (KeyedLimiterOptions.Total)", e.Stored)
	case e.Level == LevelTotal && e.Stored == 0:
		return fmt.Sprintf("the limiter has no total in etcd and one of %d in this program (KeyedLimiterOptions.Total)", e.Wanted)
	}
	options := "KeyedLimiterOptions"
	if e.Level == "" {
		options = "SemaphoreOptions"
	}
	return fmt.Sprintf("the limit is %d in etcd and %d in this program (set %s.AdoptLimit, or call %s)", e.Stored, e.Wanted, options, entry.SetBy(queue.Level(e.Level)))
}

// Is reports whether target is ErrLimitMismatch.
func (e *LimitMismatchError) Is(target error) bool { return target == ErrLimitMismatch }

// LostError says which permit or request ended, and why. Unwrap returns the cause: ErrLost,
// ErrTooLong, ErrEvicted, ErrReleased or ErrClosed. errors.Is matches it with ErrLost unless
// the cause is ErrReleased.
type LostError struct {
	Name   string // of the queue; for a permit of a KeyedLimiter that of its key
	Token  int64
	Cause  error
	Reason string // details for people: the evicting process and its reason, or what happened to the lease
}

// Error names the permit, the cause and the reason.
func (e *LostError) Error() string {
	s := fmt.Sprintf("permit %q (token %d): %v", e.Name, e.Token, e.Cause)
	if e.Token == 0 {
		s = fmt.Sprintf("permit %q: %v", e.Name, e.Cause)
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// Is reports whether target is ErrLost and the permit was not released.
func (e *LostError) Is(target error) bool { return target == ErrLost && e.Cause != ErrReleased }

// UnconfirmedError says that etcd has not confirmed the release of a permit that was valid
// when it was released. The work is done, and as far as the session's lease can show, no
// other request was granted the permit meanwhile (G4 in docs/guarantees.md). The permit
// counts as held in etcd until the release arrives there or etcd expires the lease.
// errors.Is matches it with ErrUnconfirmed, and never with ErrLost.
type UnconfirmedError struct {
	Name  string // of the queue
	Token int64
	// Cause is why there is no confirmation: the error of Release's ctx, an error of
	// etcd's, ErrClosed, or how the session's lease was lost.
	Cause error
}

// Error names the permit and the cause.
func (e *UnconfirmedError) Error() string {
	return fmt.Sprintf("release %q (token %d): etcd has not confirmed it: %v", e.Name, e.Token, e.Cause)
}

// Unwrap returns the cause.
func (e *UnconfirmedError) Unwrap() error { return e.Cause }

// Is reports whether target is ErrUnconfirmed.
func (e *UnconfirmedError) Is(target error) bool { return target == ErrUnconfirmed }

// StepDownError is the request that a holder release its permit, see Semaphore.RequestStop, or that a
// leader step down, see Election.StepDown. errors.Is matches it with ErrStepDown.
type StepDownError struct {
	Name   string // of the queue
	Token  int64  // of the permit or term
	Reason string // for people: the process that asked, and its reason
}

// Error names the permit and the reason.
func (e *StepDownError) Error() string {
	s := fmt.Sprintf("permit %q (token %d): %v", e.Name, e.Token, ErrStepDown)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Is reports whether target is ErrStepDown.
func (e *StepDownError) Is(target error) bool { return target == ErrStepDown }

func invalid(format string, args ...any) error { return engine.Invalid(format, args...) }

func unavailable(o engine.Outage) *UnavailableError {
	return &UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err}
}

// tooHeavy returns the error of a weight that a limit of that level, which is empty for a semaphore's,
// can never admit.
func tooHeavy(level Level, weight, most int64) error {
	limit := map[Level]string{
		"":         "the limit of %d (SetLimit changes it)",
		LevelKey:   "the key's limit of %d (SetLimit of the key, or SetDefault, changes it)",
		LevelTotal: "the total of %d of all keys (KeyedLimiterOptions.Total; if it is stored already, SetLimit of Total changes it)",
	}[level]
	return invalid("Weight(%d) is above "+limit, weight, most)
}
