package schedlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The errors of this package, one for each decision that a caller can make. They are wrapped with the
// job and the value in question: compare with errors.Is. Any other error is the function's own, comes
// from etcd, or is the error of a ctx.
//
// ErrInvalid, ErrLost, ErrClosed, ErrUnconfirmed and ErrUnavailable are the same values as in package
// concurrency. ErrTooLong and the error types are this package's own: errors.As finds a lost run as
// a *schedlock.LostError, not as a *concurrency.LostError, and ErrTooLong does not match ErrLost.
var (
	// ErrInvalid is concurrency.ErrInvalid: an argument or an option is wrong.
	// Nothing was written to etcd; repeating does not help.
	ErrInvalid = concurrency.ErrInvalid

	// ErrLost is concurrency.ErrLost: a run ended before its function returned, and not by
	// AtMost. The work that the function did afterwards may overlap with another run.
	ErrLost = concurrency.ErrLost

	// ErrUnlocked: Unlock has ended a run. It always comes in a *LostError, and so matches
	// ErrLost.
	ErrUnlocked = errors.New("job was unlocked")

	// ErrTooLong: a run was ended because AtMost had passed.
	ErrTooLong = errors.New("job ran too long")

	// ErrReturned: a run has ended because its function returned. It is the cause of the end of the
	// run's context, and no failure.
	ErrReturned = errors.New("job has returned")

	// ErrUnconfirmed is concurrency.ErrUnconfirmed: the function of a run returned while the run was
	// active, and etcd has not confirmed the record of the end. The run is not lost, and the error does
	// not match ErrLost. It always comes as an *UnconfirmedError, in Result.Unconfirmed; no call
	// returns it.
	ErrUnconfirmed = concurrency.ErrUnconfirmed

	// ErrUnavailable is concurrency.ErrUnavailable: a call has ended with its ctx while etcd
	// did not answer. It is joined with ctx's error, and always comes as a
	// *concurrency.UnavailableError.
	ErrUnavailable = concurrency.ErrUnavailable

	// ErrClosed is concurrency.ErrClosed: the session is closed, or its client is.
	ErrClosed = concurrency.ErrClosed

	// ErrUnknownJob: nothing of a job of this name is in etcd. The name may be misspelled, or no process
	// has run it or planned it yet.
	ErrUnknownJob = errors.New("no such job")

	// ErrNotRunning: the job has no active run, and does not cool down; or OnlyRun excludes what it does.
	ErrNotRunning = errors.New("job is not running")

	// ErrInUse: the job runs, or a live process uses it, so that it cannot be forgotten.
	ErrInUse = errors.New("job is in use")

	// ErrSettings: the job is in use with other settings. It always comes as a *SettingsError.
	ErrSettings = errors.New("job is in use with other settings")

	// ErrGone: etcd has no record of that tick: there never was one, or it was removed (Options.Keep,
	// KeepFor).
	ErrGone = errors.New("no record of this tick")
)

// SettingsError reports that a job of the same name is in use with another AtMost, AtLeast, Retries
// or period, or with other fire times. There are three causes: two jobs have one name, two releases
// of a program run at the same time, or a schedule without a zone of its own is read in the local
// zones of two hosts. The texts show fire times by the first of a January and of a July. Calls with
// neither a period nor a schedule agree with any.
//
// The settings of the process that used the job first are in force until its session ends, it begins
// to close while no run of the job is active, or it calls Remove (of Job, Locker or gocronlock.Cron), and then those of the next process
// that claims a tick. A call for a fire time waits for that, for a TTL and a second at most, since that
// process may have died. The process whose
// settings are in force can change the fire times, by a new Job. errors.Is matches it with
// ErrSettings.
type SettingsError struct {
	Job    string
	Mine   string // the settings of this call
	Theirs string // the settings in force
}

// Error returns the job and both settings.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("job %q is in use with other settings: here %s; there %s", e.Job, record.SettingsText(e.Mine), record.SettingsText(e.Theirs))
}

// Is reports whether target is ErrSettings.
func (e *SettingsError) Is(target error) bool { return target == ErrSettings }

// LostError reports which run was lost, and why. errors.Is matches it with ErrLost, and with
// ErrUnlocked or ErrClosed if that was the cause.
type LostError struct {
	Job     string
	Tick    time.Time
	Attempt int
	Token   int64
	Cause   error
	Reason  string
}

// Error returns the run, the cause and the reason.
func (e *LostError) Error() string {
	cause := fmt.Sprint(e.Cause)
	if e.Cause == ErrLost { //nolint:errorlint // its text is of a permit
		cause = "run is lost"
	}
	s := fmt.Sprintf("job %q, tick %s, attempt %d: %s", e.Job, stamp(e.Tick), e.Attempt, cause)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// UnconfirmedError reports that etcd has not confirmed the record of a run's end. The function has
// returned while the run was active. Until the record arrives in etcd, or the session's lease
// expires, the job counts as running. If the lease expires first, other processes see the run as
// lost, and start its tick again if Retries allows it. errors.Is matches it with ErrUnconfirmed,
// and never with ErrLost.
type UnconfirmedError struct {
	Job     string
	Tick    time.Time
	Attempt int
	Token   int64
	// Cause is why there is no confirmation: that SessionOptions.ReleaseTimeout has passed,
	// the error of the call's ctx, an error of etcd's, ErrClosed, or how the session's lease
	// was lost.
	Cause error
}

// Error returns the run and the cause.
func (e *UnconfirmedError) Error() string {
	return fmt.Sprintf("record the end of job %q, tick %s, attempt %d: etcd has not confirmed it: %v", e.Job, stamp(e.Tick), e.Attempt, e.Cause)
}

// Unwrap returns the cause.
func (e *UnconfirmedError) Unwrap() error { return e.Cause }

// Is reports whether target is ErrUnconfirmed.
func (e *UnconfirmedError) Is(target error) bool { return target == ErrUnconfirmed }

func invalid(format string, args ...any) error { return engine.Invalid(format, args...) }

// errDidNotReturn says that AtMost has passed, and the function still runs.
var errDidNotReturn = errors.New("the function did not return when AtMost had passed")

// once joins what the function has returned with why the run has ended: that may be the same.
func once(failed, ended error) error {
	if errors.Is(failed, ended) {
		return failed
	}
	return join.Errors(failed, ended)
}
