package concurrency

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
)

// Limiter has a semaphore for each key: a *KeyedLimiter, or Single. The packages limithttp and
// limitgrpc limit requests by one.
//
// A context has at most one permit of a Limiter. A call for another one, of whatever key, with the
// context of work under the first returns ErrInvalid at once, as long as the first has not ended:
// the context that Do or Limit gives to its function, Permit.Context, and contexts derived from them
// or from NewContext. All values of one KeyedLimiter's name on one session are one Limiter, and so
// are all of one semaphore's in Single. Those of another session are another Limiter, also in the same
// process: use one session.
//
// The semaphores that a type of the caller's own returns are those of the KeyedLimiters and Singles
// from which it has them. In Limit, limithttp and limitgrpc one of NewSemaphore counts as in Single:
// then each semaphore is a Limiter by itself, and a context can have permits of several keys.
//
// Two Limiters that are asked in either order by different calls can block each other as well: bound
// the wait by the option Wait.
type Limiter interface {
	// Key returns the semaphore of a key. It does no I/O. If it returns nil, calls for a permit return
	// ErrInvalid.
	Key(key string) *Semaphore
}

// Single returns a Limiter with one semaphore for all keys. Calls of s itself stay as they were: a
// context may have several permits of it. If s is that of a Limiter's key, the two are one Limiter.
func Single(s *Semaphore) Limiter {
	if s == nil {
		return single{}
	}
	one := s.in()
	one.source = cmp.Or(one.source, source(one.queue))
	return single{one.public()}
}

type single struct{ sem *Semaphore }

func (s single) Key(string) *Semaphore { return s.sem }

// Total returns the semaphore of all keys together, as that of a KeyedLimiter does.
func (s single) Total() *Semaphore { return s.sem }

// Limit returns fn limited: each call of the result acquires a permit of its key, runs fn under it
// and releases it, as Semaphore.Do does. The context of fn ends with the caller's, and when the
// permit is lost; FromContext finds the permit in it. Key returns the key of a call by its argument.
//
//	charge := concurrency.Limit(lim, func(o Order) string { return o.Tenant }, pay.Charge, concurrency.Wait(2*time.Second))
//	receipt, err := charge(ctx, order)
//
// If no permit is granted, the result returns the errors of Semaphore.Acquire, and fn was not run.
// Otherwise it returns the results of fn; if the permit was lost before fn returned, a *LostError
// is joined to fn's error. It returns ErrInvalid, without a request to etcd, if lim, the semaphore of
// Single, key or fn is nil, or ctx has a permit of lim, see Limiter. It is safe for concurrent use if
// fn is.
func Limit[In, Out any](lim Limiter, key func(In) string, fn func(context.Context, In) (Out, error), opts ...AcquireOption) func(context.Context, In) (Out, error) {
	missing := lim == nil || lim == Single(nil) || isNil(lim) || key == nil || fn == nil
	return func(ctx context.Context, in In) (out Out, err error) {
		if missing {
			return out, fmt.Errorf("call a limited function: %w", invalid("the limiter, the key's function or the function is nil (arguments of Limit)"))
		}
		sem := lim.Key(key(in))
		if sem.in().source == nil {
			sem = Single(sem).Key("")
		}
		err = sem.Do(ctx, func(ctx context.Context, _ *Permit) (err error) {
			out, err = fn(ctx, in)
			return err
		}, opts...)
		return out, err
	}
}

// isNil reports whether a Limiter is a nil pointer.
func isNil(lim Limiter) bool {
	v := reflect.ValueOf(lim)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
