package idempotency

import (
	"context"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/forms"
)

// Result is the result of Do.
type Result[T any] struct {
	Value T
	// Replayed reports that this call has not run the function: Value is that of another call.
	Replayed bool
	// Attempt and Token are the number and the token of the attempt that returned Value.
	Attempt int
	Token   int64
}

// Do calls fn for a request without an outcome, records the returned value as JSON and returns it.
// Later calls with the same key, and calls at the same time, return the recorded value.
//
// All callers get the same value: what encoding/json reads from the JSON of fn's value. So does the
// first one if the type does not show that this is fn's value itself: with a T of any it gets a map
// in place of a struct, and a float64 in place of an int. A field with json:"-" is empty, a time.Time
// has no monotonic clock reading, and an empty slice or map with omitempty is nil. A T that cannot be
// read back is ErrInvalid before anything is claimed: an interface with methods, such as error; a
// MarshalJSON without UnmarshalJSON; fields that are not exported, or that embedding or a name used
// twice keeps out of the JSON. A value that cannot be read back, or whose JSON differs after it was,
// is ErrInvalid when fn has returned it: an integer above 2^53 or hidden fields in an interface, a string
// that is not UTF-8.
//
// If fn returns an error, Do returns it, without its NothingDone, and the request is left to OnLost: with TakeOver the
// key is released for the same payload, so the next call runs fn again, and another payload is a
// *MismatchError; with Refuse the outcome is unknown, nothing runs until Resolve, and errors.As finds an
// *UnknownError in the error, whose text stays fn's. That holds for a refusal before the work, too, such as concurrency.ErrFull of a limit within fn: fn returns
// NothingDone(err) if nothing was done, which releases the key, and Permanent(err) for a failure that
// is recorded; OnError says it of whole kinds of errors. If fn panics, so does Do, and OnPanic decides.
// If the attempt's context has ended when fn returns an error, the attempt counts as lost, and the
// error is joined with the context's cause: ErrLost, ErrFenced, ErrClosed, ErrTooLong or the *concurrency.LostError of a permit. Such
// an error is not final: another attempt may have begun, and may succeed.
//
// Otherwise Do returns the errors of Begin and of Commit; ErrInvalid for a nil fn and for such a T,
// before anything is claimed; a *FailedError if a failure is recorded; an *OmittedError if the request was done
// and its result was not kept; and ErrUnreadable for a recorded object none of whose members T has, as of another function
// whose requests have the same Key.Op and ID. With ErrNotRecorded and ErrFenced, Result.Value is the value of fn.
// So it is with ErrInvalid for a value that has no JSON or that JSON changes; that request is recorded
// as done, without the value. ErrConflict, for a condition given to Attach, counts as an error of fn; if etcd refuses
// what was given to Attach (ErrInvalid), the attempt counts as lost.
//
// ctx bounds the wait for other attempts and for etcd, but not fn. The context of fn is the
// attempt's, which does not end with ctx, unless a permit or a run of a job is lost under which ctx runs: see Attempt.Context. When fn has returned, Do waits at most 5 seconds for etcd to
// record the end, also if ctx has ended. After that it returns ErrNotRecorded, and recording continues
// in the background.
func Do[T any](ctx context.Context, s *Store, key Key, payload any, fn func(ctx context.Context, a *Attempt) (T, error), opts ...Option) (Result[T], error) {
	var res Result[T]
	if fn == nil {
		return res, s.about(ctx, "do", invalid("%v: the function is nil", key))
	}
	if err := checkResult[T](); err != nil {
		return res, s.about(ctx, "do", fmt.Errorf("%v: %w", key, err))
	}
	a, rec, err := beginBy(ctx, s, forms.Do, key, payload, opts)
	if err != nil {
		return res, err
	}
	if rec != nil {
		res.Replayed, res.Attempt, res.Token = true, rec.Attempt, rec.Token
		return res, s.about(ctx, "replay", rec.unpack(key, &res.Value))
	}
	res.Attempt, res.Token = a.Attempt(), a.Token()
	res.Value, err = runFor(ctx, a, fn)
	return res, err
}

// runFor calls fn and settles the attempt.
func runFor[T any](ctx context.Context, a *Attempt, fn func(ctx context.Context, a *Attempt) (T, error)) (v T, err error) {
	err = a.run(ctx, func() (b []byte, err error) {
		if v, err = fn(a.Context(), a); err != nil {
			return nil, err
		}
		if b, v, err = encodeResult(v); err != nil {
			return nil, &encodeError{err}
		}
		return b, nil
	})
	return v, err
}
