// Package notice has what an operator should know of the end of an attempt, for the middlewares, which report it at
// once: the client may not come again.
package notice

// Of returns an error for an attempt, an *idempotency.Attempt, that was settled so that an operator should know it:
// an *idempotency.UnknownError if its request is refused until Resolve, or why its result is not kept. It returns nil
// for any other.
//
// Package idempotency sets it.
var Of func(attempt any) error
