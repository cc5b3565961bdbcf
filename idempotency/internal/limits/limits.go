// Package limits has what bounds an attempt, for the middlewares: what a client delays must not last as long.
package limits

import (
	"context"
	"time"
)

// Limits bound an attempt.
type Limits struct {
	// MaxExecution is that of the attempt.
	MaxExecution time.Duration
	// Closing ends when Close of the attempt's session begins, which waits for the attempt.
	Closing context.Context
}

// Of returns the limits of an attempt, an *idempotency.Attempt.
//
// Package idempotency sets it.
var Of func(attempt any) Limits
