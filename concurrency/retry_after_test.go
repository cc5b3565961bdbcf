package concurrency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestRetryAfterCountsEveryEnd: the estimate of a refusal counts permits that their holder did not
// release: those are the long ones.
func TestRetryAfterCountsEveryEnd(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	refused := func(sem *concurrency.Semaphore) time.Duration {
		_, err := sem.TryAcquire(ctx)
		var full *concurrency.FullError
		require.ErrorAs(t, err, &full)
		return full.RetryAfter
	}
	require.Zero(t, refused(keyed(t, s, "paused", 0).Key("a")))
	for name, end := range map[string]func(sem *concurrency.Semaphore, p *concurrency.Permit) error{
		"released": func(_ *concurrency.Semaphore, p *concurrency.Permit) error { return p.Release(ctx) },
		"max-hold": func(*concurrency.Semaphore, *concurrency.Permit) error { return nil },
		"evicted": func(sem *concurrency.Semaphore, p *concurrency.Permit) error {
			return sem.EvictToken(ctx, p.Token(), "test")
		},
		"by-id": func(sem *concurrency.Semaphore, _ *concurrency.Permit) error { return sem.ReleaseID(ctx, "flow") },
	} {
		sem := keyed(t, s, name, 1).Key("a")
		opts := []concurrency.AcquireOption{concurrency.ID("flow")}
		if name == "max-hold" {
			opts = append(opts, concurrency.MaxHold(10*time.Millisecond))
		}
		p := acquire(t, ctx, sem, opts...)
		require.NoError(t, end(sem, p), name)
		<-p.Context().Done()
		p = acquire(t, ctx, sem)
		require.Eventually(t, func() bool { return refused(sem) > 0 }, soon, 5*time.Millisecond, name)
		require.NoError(t, p.Release(ctx))
	}
}
