package chaos

import (
	"context"
	"errors"
	"strings"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/history"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/schedlock"
)

// definite tells which errors say for sure that the operation had no effect.
func definite(err error) bool {
	var held *concurrency.HeldError
	var mismatch *concurrency.LimitMismatchError
	for _, sure := range []error{concurrency.ErrFull, concurrency.ErrInvalid, concurrency.ErrNotHeld, concurrency.ErrTooMany, concurrency.ErrLost,
		schedlock.ErrNotRunning, schedlock.ErrUnknownJob, schedlock.ErrGone,
		idempotency.ErrInProgress, idempotency.ErrMismatch, idempotency.ErrUnknown, idempotency.ErrFailed, idempotency.ErrNotFound, idempotency.ErrConflict} {
		if errors.Is(err, sure) {
			return true
		}
	}
	var settings *schedlock.SettingsError
	var lost *concurrency.LostError // that of a request which others have released is no ErrLost
	return errors.As(err, &held) || errors.As(err, &mismatch) || errors.As(err, &settings) || errors.As(err, &lost) || errors.Is(err, errNoSession)
}

// failed records that an operation returned an error.
func failed(c *history.Call, err error) {
	e := history.Event{Outcome: history.Unknown, Error: err.Error()}
	if definite(err) {
		e.Outcome = history.Fail
	}
	switch {
	case errors.Is(err, concurrency.ErrFull):
		e.Cause = history.Full
	case errors.Is(err, concurrency.ErrLost):
		e.Cause = history.Gone
	}
	c.Return(e)
}

// cause names why a permit has ended, in the words of a history.
func cause(err error) string {
	var lost *concurrency.LostError
	switch {
	case errors.Is(err, concurrency.ErrHeldTooLong):
		return history.HeldTooLong
	case errors.Is(err, concurrency.ErrEvicted):
		return history.Evicted
	case errors.Is(err, concurrency.ErrReleased):
		return history.ReleasedID
	case errors.Is(err, concurrency.ErrClosed):
		return history.Closed
	case errors.As(err, &lost) && strings.Contains(lost.Reason, lease.ErrDeadline.Error()):
		return history.Deadline
	}
	return history.Lost
}

// deadline returns when ctx ends, as a history tells it.
func deadline(ctx context.Context) int64 {
	d, _ := ctx.Deadline()
	return history.At(d)
}

// call records one operation that only returns an error.
func (p *Process) call(ctx context.Context, e history.Event, do func() error) error {
	e.Until = deadline(ctx)
	c := p.rec.Call(e)
	err := do()
	if err != nil {
		failed(c, err)
	} else {
		c.Return(history.Event{Outcome: history.OK})
	}
	return err
}

// tally counts an operation by its outcome.
func (w *World) tally(name string, err error) {
	kind, _, _ := strings.Cut(name, " ")
	switch {
	case err == nil:
		w.Stats.Add(kind+": ok", 1)
	case definite(err):
		w.Stats.Add(kind+": refused", 1)
	default:
		w.Stats.Add("unknown", 1)
		w.Stats.Add(kind+": unknown", 1)
	}
}
