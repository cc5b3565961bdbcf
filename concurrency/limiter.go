package concurrency

import (
	"context"
	"fmt"
)

// Limiter has a semaphore for each key: a *KeyedLimiter, or Single. The packages limithttp and
// limitgrpc limit requests by one. A type of the caller's own should be comparable, such as a
// pointer: nested calls for permits of one Limiter are recognized by that.
type Limiter interface {
	// Key returns the semaphore of a key. It does no I/O.
	Key(key string) *Semaphore
}

// Single returns a Limiter with one semaphore for all keys.
func Single(s *Semaphore) Limiter { return single{s} }

type single struct{ sem *Semaphore }

func (s single) Key(string) *Semaphore { return s.sem }

// Limit returns fn limited: each call of the result acquires a permit of its key, runs fn under it
// and releases it, as Semaphore.Do does. The context of fn ends with the caller's, and when the
// permit is lost. Key returns the key of a call by its argument.
//
//	charge := concurrency.Limit(lim, func(o Order) string { return o.Tenant }, pay.Charge, concurrency.Wait(2*time.Second))
//	receipt, err := charge(ctx, order)
//
// If no permit is granted, the result returns the errors of Semaphore.Acquire, and fn was not run.
// Otherwise it returns the results of fn; if the permit was lost before fn returned, a *LostError
// is joined to fn's error. It returns ErrInvalid if lim, key or fn is nil, without a request to
// etcd. It is safe for concurrent use if fn is.
func Limit[In, Out any](lim Limiter, key func(In) string, fn func(context.Context, In) (Out, error), opts ...AcquireOption) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (out Out, err error) {
		if lim == nil || key == nil || fn == nil {
			return out, fmt.Errorf("call a limited function: %w", invalid("the limiter, the key's function or the function is nil (arguments of Limit)"))
		}
		err = lim.Key(key(in)).Do(ctx, func(ctx context.Context, _ *Permit) (err error) {
			out, err = fn(ctx, in)
			return err
		}, opts...)
		return out, err
	}
}
