package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/etcdkit/etcdkit/idempotency/internal/word"
	"github.com/etcdkit/etcdkit/internal/either"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Run calls fn, which does the work, and settles the attempt as Do does: a result is recorded; for an
// error OnError decides, for a panic OnPanic, and both are passed on to the caller. It is for code
// that translates between Begin and a transport, such as a middleware. While fn is called, the loss of a permit, or
// of a run of a job, under which ctx runs ends the attempt's context: see Attempt.Context.
//
// It returns fn's error, without its NothingDone, joined with an error of settling and, if the attempt's context had ended before, with its
// cause, such as ErrLost; errors.As also finds the *UnknownError of a request that is refused from now on, without a word of it in the text; otherwise it returns the errors of Commit, such as
// ErrNotRecorded and ErrFenced. If fn has settled the attempt itself, Run returns fn's error. It
// returns ErrInvalid for a nil fn and ErrSettled for a settled attempt, and does nothing. Certain reports whether the caller may answer its
// client.
//
// When fn has returned, Run waits at most 5 seconds for etcd to record the end, also if ctx has ended.
// After that it returns ErrNotRecorded, and recording continues in the background.
func (a *Attempt) Run(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) error {
	if !claimed(a) {
		return none("run")
	}
	if fn == nil {
		return a.about("run", invalid("the function is nil"))
	}
	if err := a.Err(); errors.Is(err, ErrSettled) {
		return a.about("run", err)
	}
	return a.run(ctx, func() ([]byte, error) {
		value, err := fn(a.Context())
		return bytes.Clone(value), err
	})
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
	if !claimed(a) {
		return false
	}
	for _, not := range []error{ErrConflict, ErrFenced, ErrInvalid, ErrSettled} {
		if errors.Is(err, not) {
			return false
		}
	}
	return a.settling.certain(a.epoch.Valid() && a.uninterrupted())
}

// run calls the function and settles the attempt, however the function ends.
func (a *Attempt) run(ctx context.Context, fn func() ([]byte, error)) (err error) {
	// The caller's ctx may have ended. The end is recorded nevertheless.
	wait := func() *either.Ctx { return either.Of(context.WithoutCancel(ctx), a.store.bound.Context(), nil) }
	foreign := true // code of the caller runs, which may panic
	defer func() {
		if !foreign {
			return
		}
		v := recover()
		failure := "runtime.Goexit was called"
		if v != nil {
			failure = fmt.Sprintf("panic: %v", v)
		}
		w := wait()
		a.Detach()
		_ = a.act(w, after(a.set.OnPanic, a.begun.Refuse), failure, nil)
		w.Release()
		if v != nil {
			panic(v)
		}
	}()
	value, err := underHolds(ctx, &a.life, fn)
	w := wait()
	defer w.Release()
	if e, done := doneBy(value, err); done {
		foreign = false
		if err = succeed(w, a, e, err); !errors.Is(err, ErrConflict) && !errors.Is(err, errRejected) {
			return err
		}
	}
	a.Detach()
	foreign = true
	what, failure := afterError(err, a.set.onError, a.begun.Refuse), err.Error()
	foreign = false
	gone := a.interrupted()
	if gone != nil || errors.Is(err, errRejected) {
		what = Abandon // what the function has done is not known
	}
	if what == Abandon {
		failure += word.Uncounted(err)
	}
	err = word.Passed(err)
	if gone != nil && !errors.Is(err, gone) {
		err = join.Errors(err, gone)
	}
	bad := a.act(w, what, failure, gone)
	if !errors.Is(bad, ErrSettled) {
		err = join.Errors(err, bad)
	}
	if unknown := unknownOf(a); unknown != nil { // not in the text, which may go to a client
		err = join.Also(err, unknown)
	}
	return err
}

// doneBy returns the end of an attempt whose function has returned what is recorded as its result: also one that has no
// JSON, and one that is a final no.
func doneBy(value []byte, err error) (e end, done bool) {
	e = end{state: record.AttemptDone, value: value}
	_, unencoded := errors.AsType[*encodeError](err)
	no, refused := errors.AsType[word.Refused](err)
	if e.refused = no.Text; unencoded {
		e.value, e.omit = nil, true
	}
	return e, err == nil || unencoded || refused
}

// succeed records such an end.
func succeed(ctx context.Context, a *Attempt, e end, returned error) error {
	err := a.finish(ctx, e)
	if unencoded, ok := errors.AsType[*encodeError](returned); ok {
		return join.Errors(a.about("commit", invalid("%w", unencoded.error)), err)
	}
	if errors.Is(err, ErrSettled) {
		return nil // the function has done it itself
	}
	return err
}

// act settles the attempt by an Action. gone is why the attempt's context had ended, if the caller
// reports that already, or nil.
func (a *Attempt) act(ctx context.Context, what Action, failure string, gone error) error {
	e := end{reported: gone}
	switch what {
	case Remember:
		e.state, e.failure = record.AttemptFailed, record.Text(failure)
	case Forget:
		e.state, e.ran = record.AttemptReleased, true
	default: // Abandon, and what is no Action
		e.failure = record.Text(failure)
	}
	return a.finish(ctx, e)
}
