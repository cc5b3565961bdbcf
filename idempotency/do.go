package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Result is what Do returns.
type Result[T any] struct {
	Value T
	// Replayed says that the function was not called by this call: the value is that of
	// an earlier or simultaneous one.
	Replayed bool
	// Attempt and Token are those of the attempt that made the value.
	Attempt int
	Token   int64
}

// Do does the request with that key once, however often it is called: it calls fn, records
// the value that it returns, as JSON, and returns it; later calls, and those that come at
// the same time, get that value.
//
// If fn returns an error, Do returns it as it is, and OnError says what becomes of the
// request; by default the key is given free for the same payload: the next call with it calls
// fn again, and another payload is a *MismatchError. If it
// panics, so does Do, and OnPanic says. If the attempt's context has ended before, and
// fn returns an error, the attempt counts as lost, and the error is joined with the context's
// cause: ErrLost, ErrClosed or ErrTooLong. Such an error is not final: another attempt may
// have begun, and succeed.
//
// Else Do returns what Begin returns; ErrInvalid for a nil fn, before anything is claimed;
// a *FailedError if a failure was remembered; an *OmittedError if the request is done and
// its result was not kept; and what Commit returns. After ErrNotRecorded and ErrFenced the
// Result has the value that fn returned; so it has with ErrInvalid for a value that has no
// JSON, whose request is recorded as done, without it.
// ErrConflict, of what was given to Attempt.Attach, is treated as an error of fn; after ErrInvalid
// of it the attempt counts as lost.
//
// ctx bounds the waiting for others and for etcd, but not fn: its context is the
// attempt's, which does not end when the caller goes away.
func Do[T any](ctx context.Context, s *Store, key Key, payload any, fn func(ctx context.Context, a *Attempt) (T, error), opts ...Option) (Result[T], error) {
	var res Result[T]
	if fn == nil {
		return res, fmt.Errorf("begin request in store %q: %w", s.name, invalid("the function is nil"))
	}
	a, rec, err := s.Begin(ctx, key, payload, opts...)
	if err != nil {
		return res, err
	}
	if rec != nil {
		res.Replayed, res.Attempt, res.Token = true, rec.Attempt, rec.Token
		err := rec.unpack(key, &res.Value)
		return res, err
	}
	res.Attempt, res.Token = a.Attempt(), a.Token()
	err = a.run(ctx, func() ([]byte, error) {
		v, err := fn(a.Context(), a)
		res.Value = v
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, &encodeError{err}
		}
		return b, nil
	})
	return res, err
}

// encodeError says that a value has no JSON. The work is done all the same.
type encodeError struct{ error }

func (e *encodeError) Unwrap() error { return e.error }

// unpack reads a replayed value.
func (r *Outcome) unpack(key Key, v any) error {
	switch {
	case r.Failed:
		return &FailedError{Key: key, Outcome: r}
	case r.Omitted:
		return &OmittedError{Key: key, Outcome: r}
	}
	if err := json.Unmarshal(r.Value, v); err != nil {
		return fmt.Errorf("%v: %w: %w", key, ErrUnreadable, err)
	}
	return nil
}

// recordWithin bounds for how long Do waits until etcd has the outcome.
const recordWithin = commit.CallTimeout

// run calls the function and settles the attempt, however it ends.
func (a *Attempt) run(ctx context.Context, fn func() ([]byte, error)) (err error) {
	// The caller may have gone. What was done is recorded all the same.
	wait := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	}
	theirs := true // the caller's code runs, which may panic
	defer func() {
		if !theirs {
			return
		}
		v := recover()
		failure := "runtime.Goexit was called"
		if v != nil {
			failure = fmt.Sprintf("panic: %v", v)
		}
		w, cancel := wait()
		a.Detach()
		_ = a.act(w, a.set.onPanic, failure, nil)
		cancel()
		if v != nil {
			panic(v)
		}
	}()
	value, err := fn()
	w, cancel := wait()
	defer cancel()
	var unencoded *encodeError
	switch {
	case errors.As(err, &unencoded):
		theirs = false
		return errors.Join(invalid("%v: the value has no JSON: %w", a.key, unencoded.error), a.finish(w, &settlement{state: record.AttemptDone, omit: true}))
	case err == nil:
		theirs = false
		err = a.Commit(w, value)
		if errors.Is(err, ErrSettled) {
			return nil // fn has done it itself
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, errRejected) {
			return err
		}
	}
	a.Detach()
	theirs = true
	what, failure := a.set.onError(err), err.Error()
	theirs = false
	gone := a.interrupted()
	if gone != nil || errors.Is(err, errRejected) {
		what = Abandon // it cannot say how far it came
	}
	if gone != nil && !errors.Is(err, gone) {
		err = errors.Join(err, gone)
	}
	if bad := a.act(w, what, failure, gone); bad != nil && !errors.Is(bad, ErrSettled) {
		err = errors.Join(err, bad)
	}
	return err
}

// act does with the request what the policy says after a failure. gone is why the attempt's
// context had ended, if the caller reports that already, or nil.
func (a *Attempt) act(ctx context.Context, what Action, failure string, gone error) error {
	o := &settlement{reported: gone}
	switch what {
	case Remember:
		o.state, o.failure = record.AttemptFailed, record.Text(failure)
	case Abandon:
	default:
		o.state, o.ran = record.AttemptReleased, true
	}
	return a.finish(ctx, o)
}
