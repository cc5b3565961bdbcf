package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/limits"
	"github.com/etcdkit/etcdkit/idempotency/internal/notice"
	"github.com/etcdkit/etcdkit/idempotency/internal/silence"
	"github.com/etcdkit/etcdkit/idempotency/internal/word"
)

// Result is the result of a handler.
type Result struct {
	Action idempotency.Action
	// Own says that Action is the handler's own word, not what its response stands for.
	Own bool
	// Err is the error that the handler has returned. If it is idempotency.NothingDone or Permanent, it
	// decides in place of Action.
	Err error
	// Failed says that the response is a failure: the operations that the handler gave to
	// Attempt.Attach are not written, and an interrupted attempt counts as lost.
	Failed bool
	// NothingDone says that a middleware has answered in place of the handler, whatever its answer looks like.
	NothingDone bool
	// Because says how the handler has ended, for the log of an attempt whose outcome is unknown.
	Because string
	// Withhold says that the handler has given no response that may be sent: its attempt counts as lost (Lost), and the
	// client would take the response for a success.
	Withhold bool
	// Encode returns the form in which the response is recorded. It is called for Remember.
	Encode func() []byte
}

// Lost reports whether the attempt whose context ctx is counts as lost after that result: under idempotency.Refuse, only
// the handler's own word forgets a request.
func (r Result) Lost(ctx context.Context) bool {
	return r.Action == idempotency.Abandon || r.Action == idempotency.Forget && !r.Own && idempotency.Refuses(ctx)
}

// Run calls a handler under the attempt and settles the attempt by the handler's result. It
// returns nil if the response may be sent, and otherwise the refusal in place of it: another
// attempt may have had another outcome. That holds for responses that are not recorded, too.
// Report is called with the error if settling has failed, and with what an operator should know of the attempt's
// end, also after a panic: see package notice.
func (s Settings) Run(ctx context.Context, a *idempotency.Attempt, report func(error), handler func(context.Context) Result) *Refusal {
	var own, err error
	withhold := false
	defer func() {
		switch known := notice.Of(a); {
		case known != nil && err != nil:
			report(fmt.Errorf("%w; %w", err, known))
		case known != nil && err == nil:
			report(known)
		case err != own: //nolint:errorlint // joined with an error of settling, it is reported
			report(err)
		}
	}()
	err = a.Run(ctx, func(ctx context.Context) ([]byte, error) {
		res := handler(ctx)
		withhold = res.Withhold
		switch word.Of(res.Err) {
		case word.NothingDone:
			res.Action, res.Own = idempotency.Forget, true
		case word.Permanent:
			res.Action, res.Own = idempotency.Remember, true
		case word.None:
			if res.NothingDone && !res.Own {
				res.Action, res.Own, res.Failed = idempotency.Forget, true, true
			}
		}
		if res.Failed && a.Err() != nil {
			res.Action = idempotency.Abandon // interrupted: how far the handler came is unknown
		}
		if res.Action != idempotency.Remember {
			own = notRecorded{res.Action, res.Because + word.Uncounted(res.Err)}
			if res.Own && res.Action == idempotency.Forget {
				return nil, idempotency.NothingDone(own)
			}
			return nil, own
		}
		if res.Failed {
			a.Detach() // as after an error of Do's function
			return res.Encode(), word.Refused{Text: res.Because}
		}
		return res.Encode(), nil
	})
	switch {
	case a.Certain(err) && !withhold:
		return nil
	case errors.Is(err, idempotency.ErrConflict):
		if IsUnknown(a) {
			return &Refusal{Reason: Conflict, Ref: a.Ref()}
		}
		return &Refusal{Reason: Conflict, RetryAfter: retryAfter}
	case errors.Is(err, idempotency.ErrInvalid):
		return &Refusal{Reason: Internal} // etcd refuses the operations given to Attempt.Attach
	case IsUnknown(a):
		return s.unknown(a) // the next duplicate gets the same
	}
	return &Refusal{Reason: InProgress, RetryAfter: retryAfter}
}

// unknown returns the refusal of a request whose attempt was abandoned, and which an operator has to resolve.
func (s Settings) unknown(a *idempotency.Attempt) *Refusal {
	refused := &Refusal{Reason: Unknown, Ref: a.Ref()}
	if known, ok := errors.AsType[*idempotency.UnknownError](notice.Of(a)); ok && s.ShowNote {
		refused.Note = known.Note
	}
	return refused
}

// IsUnknown reports whether an attempt was abandoned, and its request is refused until an operator has resolved it.
func IsUnknown(a *idempotency.Attempt) bool { return errors.Is(notice.Of(a), idempotency.ErrUnknown) }

// LimitsOf returns what bounds an attempt.
func LimitsOf(a *idempotency.Attempt) limits.Limits { return limits.Of(a) }

// Plain returns an error that a handler has returned without its word, for the client.
func Plain(err error) error { return word.Plain(err) }

// notRecorded is the error of a function whose response is not recorded.
type notRecorded struct {
	action  idempotency.Action
	because string
}

func (e notRecorded) Error() string { return e.because }

// onError is the OnError of all attempts.
func onError(err error) idempotency.Action {
	if u, ok := errors.AsType[notRecorded](err); ok {
		return u.action
	}
	return idempotency.DefaultAction
}

// Clock measures a wait to which a pause of the process does not count.
type Clock = silence.Clock

// Part is a part of such a wait.
type Part = silence.Part

// StartClock is silence.Start.
func StartClock(d time.Duration, each func(Part) (more bool)) *Clock { return silence.Start(d, each) }

// WithinClock is silence.Within.
func WithinClock(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return silence.Within(ctx, d)
}
