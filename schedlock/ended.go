package schedlock

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/internal/join"
)

// endedBy is the cause with which this package ends a ctx that it has derived. The cause of a
// caller's ctx never has this type, even if it is another session's ErrClosed.
type endedBy struct{ error }

// ended returns why ctx has ended: the error with which this package has ended it, or otherwise the
// error of the caller's ctx, whatever its cause. It returns nil if ctx has not ended.
func ended(ctx context.Context) error {
	if by, ours := context.Cause(ctx).(endedBy); ours { //nolint:errorlint // a cause that wraps one is the caller's
		return by.error
	}
	return ctx.Err()
}

// final reports whether ctx was ended by this package because no call is accepted any more.
func final(end error) bool { return end == ErrClosed || end == errRemoved } //nolint:errorlint // by this package

// joinEnd joins err with the reason why ctx has ended, if it has. When the session closes or the job is removed, err is
// only that a call was interrupted, and is dropped.
func joinEnd(ctx context.Context, err error) error {
	switch end := ended(ctx); {
	case err == nil:
		return nil
	case final(end):
		return end
	case end != nil && !errors.Is(err, end):
		return join.Errors(end, err)
	}
	return err
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
