package middleware

import (
	"context"
	"errors"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Result is the result of a handler.
type Result struct {
	Action idempotency.Action
	// Failed says that the response is a failure: the operations that the handler gave to
	// Attempt.Attach are not written, and an interrupted attempt counts as lost.
	Failed bool
	// Encode returns the form in which the response is recorded. It is called for Remember.
	Encode func() []byte
}

// Run calls a handler under the attempt and settles the attempt by the handler's result. It
// returns nil if the response may be sent, and otherwise the refusal in place of it: another
// attempt may have had another outcome. That holds for responses that are not recorded, too.
// Report is called with the error if settling has failed.
func Run(ctx context.Context, a *idempotency.Attempt, report func(error), handler func(context.Context) Result) *Refusal {
	err := a.Run(ctx, func(ctx context.Context) ([]byte, error) {
		res := handler(ctx)
		if res.Failed && a.Err() != nil {
			res.Action = idempotency.Abandon // interrupted: how far the handler came is unknown
		}
		if res.Action != idempotency.Remember {
			return nil, notRecorded{res.Action}
		}
		if res.Failed {
			a.Detach() // as after an error of Do's function
		}
		return res.Encode(), nil
	})
	if _, only := err.(notRecorded); err != nil && !only { //nolint:errorlint // joined with an error of settling, it is reported
		report(err)
	}
	switch {
	case a.Certain(err):
		return nil
	case errors.Is(err, idempotency.ErrConflict):
		return &Refusal{Reason: Conflict, RetryAfter: retryAfter}
	case errors.Is(err, idempotency.ErrInvalid):
		return &Refusal{Reason: Internal} // etcd refuses the operations given to Attempt.Attach
	}
	return &Refusal{Reason: InProgress, RetryAfter: retryAfter}
}

// notRecorded is the error, for the attempt, of a response that is not to be recorded.
type notRecorded struct{ action idempotency.Action }

func (notRecorded) Error() string { return "the response is not recorded" }

// onError is the OnError of all attempts.
func onError(err error) idempotency.Action {
	if u, ok := errors.AsType[notRecorded](err); ok {
		return u.action
	}
	return idempotency.Forget
}
