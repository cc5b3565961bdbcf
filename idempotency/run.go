package idempotency

import (
	"context"
	"errors"
)

// Run calls fn, which does the work, and settles the attempt by how that ends, as Do does:
// a result is recorded; of an error OnError decides, of a panic OnPanic, and both go on to
// the caller. It is for those who translate between Begin and a transport.
//
// It returns fn's error, joined with what went wrong about settling; or what Commit returns,
// such as ErrNotRecorded and ErrFenced. If fn has settled the attempt itself, it returns
// fn's error; and ErrInvalid for a nil fn, with which nothing is done. ctx's end does not end it;
// it takes 5 seconds to record at most.
func (a *Attempt) Run(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) error {
	if fn == nil {
		return invalid("%v: the function is nil", a.key)
	}
	return a.run(ctx, func() ([]byte, error) { return fn(a.ctx) })
}

// Certain tells, of what Run or Commit has returned, whether the outcome is the one that
// counts, so that the caller's own caller may be told of it: it is recorded; or it is not yet
// (ErrNotRecorded), and nothing but the loss of the session can keep it from being recorded.
// That needs that nothing was given to With, which may be refused in the end, and that the
// attempt had not ended before, so that another may have begun.
func (a *Attempt) Certain(err error) bool {
	a.mu.Lock()
	conditional := len(a.ifs)+len(a.then) > 0
	a.mu.Unlock()
	return err == nil || errors.Is(err, ErrNotRecorded) && errors.Is(a.Err(), ErrSettled) && !conditional
}
