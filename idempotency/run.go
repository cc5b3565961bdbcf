package idempotency

import (
	"context"
	"errors"
	"fmt"
)

// Run calls fn, which does the work, and settles the attempt by how that ends, as Do does:
// a result is recorded; of an error OnError decides, of a panic OnPanic, and both go on to
// the caller. It is for those who translate between Begin and a transport.
//
// It returns fn's error, joined with what went wrong about settling, and with the cause of
// the attempt's context if that had ended before, such as ErrLost; or what Commit returns,
// such as ErrNotRecorded and ErrFenced. If fn has settled the attempt itself, it returns
// fn's error; and ErrInvalid for a nil fn, with which nothing is done. ctx's end does not end it;
// it takes 5 seconds to record at most. Certain reports whether the caller may be answered by it.
func (a *Attempt) Run(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) error {
	if fn == nil {
		return fmt.Errorf("%v: %w", a.key, invalid("the function is nil"))
	}
	return a.run(ctx, func() ([]byte, error) { return fn(a.Context()) })
}

// Certain reports, of what Run, Commit, Fail, Release or Abandon has returned, whether the
// caller may answer its own caller by it: whether no other attempt can have had another
// outcome. That is so if the result or the failure is recorded; or if the request was given
// up, by Release or Abandon, before the attempt's context had ended.
//
// After ErrNotRecorded it is so as long as nothing but the loss of the session can keep the
// outcome from being recorded. That needs that the session is not lost yet, by the clocks,
// which Certain reads; that the attempt's context had not ended before; and that nothing was
// given to Attach, which may be refused in the end.
//
// It is never so after ErrConflict, ErrFenced, ErrInvalid and ErrSettled. So a function's
// refusal whose attempt was interrupted is not: another may have begun, and succeed.
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
