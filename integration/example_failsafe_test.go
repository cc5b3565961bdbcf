package integration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/etcdkit/etcdkit/concurrency"
)

// guarded calls a provider under a limit for the fleet, with failsafe-go around it. From the outside in:
//
//   - The retry is around the permit. A call that pauses before it tries again holds no permit, so
//     the pause costs the fleet no capacity. It waits for as long as FullError.RetryAfter says.
//   - The permit is around the breaker. The limit is that of the fleet, the breaker that of this
//     process.
//   - The breaker is around the provider alone. A full limit and an unavailable etcd are no failures
//     of the provider, and never open it. While it is open, a permit is held for microseconds.
type guarded struct {
	lim     concurrency.Limiter
	retry   retrypolicy.RetryPolicy[string]
	breaker circuitbreaker.CircuitBreaker[string]
}

func guard(lim concurrency.Limiter) guarded {
	return guarded{
		lim: lim,
		retry: retrypolicy.NewBuilder[string]().
			HandleErrors(concurrency.ErrFull, concurrency.ErrUnavailable, errProvider). // not circuitbreaker.ErrOpen: that fails at once
			AbortOnErrors(concurrency.ErrLost).                                         // the call may have taken effect; repeat it only with an idempotency key
			WithMaxRetries(3).
			WithDelayFunc(pauseBeforeRetry).
			ReturnLastFailure(). // an error that the caller's errors.Is understands
			Build(),
		breaker: circuitbreaker.NewBuilder[string]().
			HandleErrors(errProvider).
			WithFailureThreshold(5).
			WithDelay(time.Minute).
			Build(),
	}
}

// pauseBeforeRetry returns how long a call waits before it tries again.
func pauseBeforeRetry(exec failsafe.ExecutionAttempt[string]) time.Duration {
	if full, ok := errors.AsType[*concurrency.FullError](exec.LastError()); ok && full.RetryAfter > 0 {
		return full.RetryAfter
	}
	return 200 * time.Millisecond << min(exec.Retries(), 4)
}

// call calls the provider for a tenant.
func (g guarded) call(ctx context.Context, tenant string, provider func(context.Context) (string, error)) (string, error) {
	return failsafe.With(g.retry).WithContext(ctx).GetWithExecution(func(exec failsafe.Execution[string]) (reply string, err error) {
		err = g.lim.Key(tenant).Do(exec.Context(), func(ctx context.Context, _ *concurrency.Permit) (err error) {
			reply, err = failsafe.With(g.breaker).WithContext(ctx).Get(func() (string, error) { return provider(ctx) })
			return err
		}, concurrency.Wait(50*time.Millisecond))
		return reply, err
	})
}

var errProvider = errors.New("the provider has failed")

// A call to a provider of which the fleet may have one at a time for each tenant: it is retried while the
// limit is full, which does not open the breaker; failures of the provider do.
func Example_failsafe() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var limiters []concurrency.Limiter
	defer processes(ctx, func(sess *concurrency.Session) {
		limiters = append(limiters, must(concurrency.NewKeyedLimiter(sess, "providers", 1, nil)))
	})()
	g := guard(limiters[0])

	busy := must(limiters[1].Key("acme").Acquire(ctx)) // another process calls for this tenant
	time.AfterFunc(100*time.Millisecond, func() { _ = busy.Release(ctx) })
	fmt.Println(g.call(ctx, "acme", func(context.Context) (string, error) { return "hello", nil }))
	fmt.Println("breaker:", g.breaker.State())

	calls := 0
	for range 2 {
		_, err := g.call(ctx, "acme", func(context.Context) (string, error) { calls++; return "", errProvider })
		fmt.Println(errors.Is(err, errProvider), errors.Is(err, circuitbreaker.ErrOpen))
	}
	fmt.Println("the provider was called", calls, "times; breaker:", g.breaker.State())
	// Output:
	// hello <nil>
	// breaker: closed
	// true false
	// false true
	// the provider was called 5 times; breaker: open
}
