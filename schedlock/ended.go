package schedlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/join"
)

// endedBy is the cause with which this package ends a ctx that it has derived. The cause of a
// caller's ctx never has this type, even if it is another session's ErrClosed.
type endedBy struct{ error }

// untilClose derives a ctx that also ends when Close of the session begins. If it has begun, ctx has
// ended when untilClose returns.
func (l *Locker) untilClose(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if l.sess.Accepting().Err() != nil {
		cancel(endedBy{ErrClosed})
	}
	stop := context.AfterFunc(l.sess.Accepting(), func() { cancel(endedBy{ErrClosed}) })
	return ctx, func() { stop(); cancel(nil) }
}

// ended returns why ctx has ended: the error with which this package has ended it, or otherwise the
// error of the caller's ctx, whatever its cause. It returns nil if ctx has not ended.
func ended(ctx context.Context) error {
	if by, ours := context.Cause(ctx).(endedBy); ours { //nolint:errorlint // a cause that wraps one is the caller's
		return by.error
	}
	return ctx.Err()
}

// joinEnd joins err with the reason why ctx has ended, if it has. When the session closes, err is
// only that a call was interrupted, and is dropped.
func joinEnd(ctx context.Context, err error) error {
	switch end := ended(ctx); {
	case err == nil:
		return nil
	case end == ErrClosed: //nolint:errorlint // by this package
		return ErrClosed
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

// about wraps the error of a call with what it attempted and the job.
func (l *Locker) about(attempted, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s job %q: %w", attempted, name, l.sess.Explain(err))
}

// endError returns the error of a call that has asked etcd since a time without an answer. If ctx
// has ended meanwhile, the error includes that etcd does not answer, so that it does not read as
// the end of a wait for another run.
func (l *Locker) endError(ctx context.Context, asked time.Time, err error) error {
	err = joinEnd(ctx, err)
	if end := ended(ctx); err == nil || end == nil || end == ErrClosed || errors.Is(err, ErrUnavailable) { //nolint:errorlint // by this package
		return err
	}
	if o, ok := l.sess.Unanswered(asked); ok {
		return fmt.Errorf("%w: %w", err, &concurrency.UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err})
	}
	return err
}
