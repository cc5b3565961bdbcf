// Package retries marks a context whose equal calls are one call and its repetitions, as the WithNewKey of the clients
// makes it. Package idempotency gives them one key: see idempotency.CallKey.
package retries

import "context"

type key struct{}

// With returns a context with the mark, which is comparable and names it. If it has a method Key() string, that is the key of
// calls that have none of their attempt any more.
func With(ctx context.Context, mark any) context.Context { return context.WithValue(ctx, key{}, mark) }

// Of returns the mark of a context, or nil.
func Of(ctx context.Context) any { return ctx.Value(key{}) }
