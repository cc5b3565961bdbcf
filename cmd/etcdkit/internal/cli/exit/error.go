package exit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// usageError is a mistake in the flags or arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef returns an error of flags or arguments: its code is Usage.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// AsUsage returns an error that wraps err, and whose code is Usage.
func AsUsage(err error) error { return usageError{err} }

// Error is an end with a code of its own, such as that of a command. Its error may be nil: then
// nothing is reported.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of Err, or "".
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// With returns an error with a code, an *Error, for err, which may be nil.
func With(code int, err error) error { return &Error{code, err} }

// Errorf returns an error with a code, an *Error, and a text.
func Errorf(code int, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}

// Signals are the signals that end a verb.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// Interrupted is the end of a verb by a signal.
type Interrupted struct{ syscall.Signal }

// Error names the signal.
func (i Interrupted) Error() string { return "ended by a signal: " + i.Signal.String() }

// early is an error that has come before the signal that ends a verb.
type early struct{ error }

func (e early) Unwrap() error { return e.error }

// Early returns an error of a verb that serves, marked if ctx has not ended: no signal is its reason, and Served returns it
// also if a signal comes while the verb closes what it has. err may be nil, and then nil is returned.
func Early(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return early{err}
}

// Served returns an error of a verb that serves until a signal ends it, and nil if ctx has ended, unless Early has marked the
// error: a signal is the verb's end also while etcd is away or denies what the end needs.
func Served(ctx context.Context, err error) error {
	if _, marked := errors.AsType[early](err); marked || ctx.Err() == nil {
		return err
	}
	return nil
}

// OrInterrupted returns an error: Interrupted, by the signal that has canceled ctx, if err is of that, and otherwise err.
func OrInterrupted(ctx context.Context, err error) error {
	var by Interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &by) {
		return by
	}
	return err
}
