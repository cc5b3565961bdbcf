package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/share"
)

// Reason is why a middleware answers in place of the handler. The texts are the codes of limithttp;
// limitgrpc writes them in its own form.
type Reason string

// The reasons.
const (
	KeyFull      Reason = "key-full"      // the limit of the key is reached
	TotalFull    Reason = "total-full"    // the total of all keys is reached, or the limit of concurrency.Single
	RateExceeded Reason = "rate-exceeded" // there is no token of the rate
	Unavailable  Reason = "unavailable"   // etcd does not answer, the session is closed, or it has too many requests
	Lost         Reason = "lost"          // the permit, or the place in the queue, was lost
	Held         Reason = "held"          // another request has the ID given in Options.Each
	Ended        Reason = "ended"         // the request's context has ended while it waited
	Internal     Reason = "internal"      // the program or its settings are wrong
)

// Refusal is the answer of a middleware in place of the handler's response.
type Refusal struct {
	Reason Reason
	// Limit is that of the key, for KeyFull.
	Limit      int
	RetryAfter time.Duration // 0 if nothing is known, waiting does not help, or the request may have taken effect
	// Report says that an operator should know the error.
	Report bool
}

// Refuse returns the answer to a request of the key, for an error of Run or Acquire. ran says whether the request had begun:
// then it may have taken effect, so the answer does not say when to repeat it.
func (a *Admission) Refuse(ctx context.Context, key string, ran bool, err error) Refusal {
	full, _ := errors.AsType[*concurrency.FullError](err)
	exceeded, _ := errors.AsType[*concurrency.RateExceededError](err)
	switch {
	case ran:
		return Refusal{Reason: Lost, Report: true}
	case errors.Is(err, share.ErrUnseen):
		// Wait was shorter than etcd's latency: whether a permit is free is not known.
		return Refusal{Reason: Unavailable, RetryAfter: a.after(Unavailable, "", nil)}
	case full != nil && (full.Level == concurrency.LevelTotal || ofAll(a.Limiter, key)):
		return Refusal{Reason: TotalFull, RetryAfter: a.after(TotalFull, "", full)}
	case full != nil:
		return Refusal{Reason: KeyFull, Limit: full.Limit, RetryAfter: a.after(KeyFull, key, full)}
	case errors.Is(err, concurrency.ErrHeld):
		return Refusal{Reason: Held, RetryAfter: a.after(Held, key, nil)}
	case errors.Is(err, concurrency.ErrInvalid), errors.Is(err, concurrency.ErrLimitMismatch):
		return Refusal{Reason: Internal, Report: true}
	case errors.Is(err, concurrency.ErrLost), errors.Is(err, concurrency.ErrReleased):
		return Refusal{Reason: Lost, RetryAfter: a.after(Lost, "", nil), Report: true}
	case ctx.Err() != nil:
		return Refusal{Reason: Ended}
	case exceeded != nil:
		return Refusal{Reason: RateExceeded, RetryAfter: a.afterRate(exceeded)}
	}
	return Refusal{Reason: Unavailable, RetryAfter: a.after(Unavailable, "", nil), Report: true}
}

// after returns when to repeat a request. A limit of 0 is a pause, whose end is unknown.
func (a *Admission) after(why Reason, key string, full *concurrency.FullError) time.Duration {
	switch {
	case full == nil:
		return a.retry.after(group{why, key}, 0, 0, time.Now())
	case full.Limit == 0:
		return 0
	}
	return a.retry.after(group{why, key}, full.RetryAfter, full.Waiting, time.Now())
}
