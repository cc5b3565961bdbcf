// Package outcome translates the product's errors for a history. For tests.
package outcome

import (
	"errors"
	"strings"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/schedlock"
)

// ErrNotTried is what errors wrap that the product was not asked for.
var ErrNotTried = errors.New("not tried")

// Definite reports which errors say for certain that the operation had no effect. A release that
// is not confirmed (concurrency.ErrUnconfirmed) may still have one until its lease ends.
func Definite(err error) bool {
	for _, sure := range []error{ErrNotTried,
		concurrency.ErrFull, concurrency.ErrInvalid, concurrency.ErrNotHeld, concurrency.ErrNoLimit, concurrency.ErrTooMany, concurrency.ErrLost,
		schedlock.ErrNotRunning, schedlock.ErrUnknownJob, schedlock.ErrGone, schedlock.ErrSettings,
		idempotency.ErrInProgress, idempotency.ErrMismatch, idempotency.ErrUnknown, idempotency.ErrScopeFull, idempotency.ErrFailed, idempotency.ErrNotFound, idempotency.ErrConflict, idempotency.ErrAlive} {
		if errors.Is(err, sure) {
			return true
		}
	}
	var held *concurrency.HeldError
	var mismatch *concurrency.LimitMismatchError
	var lost *concurrency.LostError // that of a request which others have released is no ErrLost
	return errors.As(err, &held) || errors.As(err, &mismatch) || errors.As(err, &lost)
}

// Return records what an operation returned.
func Return(c *history.Call, err error) {
	if err == nil {
		c.Return(history.Event{Outcome: history.OK})
		return
	}
	e := history.Event{Outcome: history.Unknown, Error: err.Error()}
	if Definite(err) {
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

// Cause names why a permit has ended.
func Cause(err error) string {
	var lost *concurrency.LostError
	switch {
	case errors.Is(err, concurrency.ErrTooLong):
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
