package schedlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// endedBy is the cause with which this package ends a ctx that it has derived. A cause of the
// caller's ctx is never one, be it another session's ErrClosed.
type endedBy struct{ error }

// open derives a ctx that also ends when Close of the session begins.
func (l *Locker) open(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.accept, func() { cancel(endedBy{ErrClosed}) })
	return ctx, func() { stop(); cancel(nil) }
}

// ended returns why ctx has ended: with what this package has ended it, or else with the error
// of the caller's ctx, whatever its cause. It returns nil if ctx has not ended.
func ended(ctx context.Context) error {
	if by, ours := context.Cause(ctx).(endedBy); ours { //nolint:errorlint // a cause that wraps one is the caller's
		return by.error
	}
	return ctx.Err()
}

// because returns why ctx has ended, if it has, together with err. Once the session closes, err
// says no more than that a call was cut short.
func because(ctx context.Context, err error) error {
	switch end := ended(ctx); {
	case end == ErrClosed: //nolint:errorlint // by this package
		return ErrClosed
	case end != nil && !errors.Is(err, end):
		return errors.Join(end, err)
	}
	return err
}

// explain adds to an error that denies permission what an operator has to change.
func (l *Locker) explain(err error) error { return commit.Explain(err, l.space.Root()) }

// cut returns the error of a call during which etcd was asked, since that time without an
// answer. If ctx has ended meanwhile it says so, and that etcd does not answer, so that it does
// not read as the end of a wait for another run.
func (l *Locker) cut(ctx context.Context, asked time.Time, err error) error {
	err = because(ctx, err)
	if end := ended(ctx); end == nil || end == ErrClosed || errors.Is(err, ErrUnavailable) { //nolint:errorlint // by this package
		return err
	}
	if o, ok := l.sess.Unanswered(asked); ok {
		return fmt.Errorf("%w: %w", err, &concurrency.UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err})
	}
	return err
}
