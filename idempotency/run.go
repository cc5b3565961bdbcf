package idempotency

import (
	"context"
	"errors"
)

// Run calls fn, which does the work, and settles the attempt as Do does: a result is recorded; for an
// error OnError decides, for a panic OnPanic, and both are passed on to the caller. It is for code
// that translates between Begin and a transport, such as a middleware.
//
// It returns fn's error, without its NothingDone, joined with an error of settling and, if the attempt's context had ended
// before, with its cause, such as ErrLost; otherwise it returns the errors of Commit, such as
// ErrNotRecorded and ErrFenced. If fn has settled the attempt itself, Run returns fn's error. It
// returns ErrInvalid for a nil fn and ErrSettled for a settled attempt, and does nothing. Certain reports whether the caller may answer its
// client.
//
// When fn has returned, Run waits at most 5 seconds for etcd to record the end, also if ctx has ended.
// After that it returns ErrNotRecorded, and recording continues in the background.
func (a *Attempt) Run(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) error {
	if fn == nil {
		return a.about("run", invalid("the function is nil"))
	}
	if err := a.Err(); errors.Is(err, ErrSettled) {
		return a.about("run", err)
	}
	return a.run(ctx, func() ([]byte, error) { return fn(a.Context()) })
}

// Certain reports whether the request's outcome is final, so that the caller may answer its client;
// err is what Run, Commit, Fail, Release or Abandon has returned. The outcome is final if no other
// attempt can have another one: the result or the failure is recorded, or the request was given up,
// by Release or Abandon, before the attempt's context had ended.
//
// After ErrNotRecorded the outcome is final as long as only the loss of the session can keep it from
// being recorded: the session is not lost yet by the clocks, which Certain reads; the attempt's
// context had not ended before; and nothing was given to Attach, which etcd may refuse in the end.
//
// After ErrConflict, ErrFenced, ErrInvalid and ErrSettled it is never final. An error of a function
// whose attempt was interrupted is not final either: another attempt may have begun, and may
// succeed.
func (a *Attempt) Certain(err error) bool {
	for _, not := range []error{ErrConflict, ErrFenced, ErrInvalid, ErrSettled} {
		if errors.Is(err, not) {
			return false
		}
	}
	valid := a.epoch.Valid()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over != nil || !a.ending {
		return a.final
	}
	return valid && errors.Is(a.life.Cause(), ErrSettled) && len(a.ifs)+len(a.then) == 0
}
