package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A limit that is adopted and differs from the program's is logged once, with both and the call that changes it; so is
// a rate. A program that names no limit adopts in silence.
func TestAdoptedLimitIsLogged(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	first, _ := f.Session(idle())
	require.NoError(t, acquire(t, ctx, sem(t, first, "charge", 3)).Release(ctx))
	api, err := concurrency.NewKeyedLimiter(first, "api", 2, &concurrency.KeyedLimiterOptions{Total: 20})
	require.NoError(t, err)
	require.NoError(t, acquire(t, ctx, api.Key("a")).Release(ctx))
	require.NoError(t, rateLimiter(t, first, "mail", 500, 50).Wait(ctx))

	core, lines := observer.New(zapcore.InfoLevel)
	opts := idle()
	opts.Logger = zap.New(core)
	second, _ := f.Session(opts)
	adopting := func(limit int) *concurrency.Semaphore {
		sm, err := concurrency.NewSemaphore(second, "charge", limit, &concurrency.SemaphoreOptions{AdoptLimit: true})
		require.NoError(t, err)
		return sm
	}
	charge := adopting(5)
	keyed, err := concurrency.NewKeyedLimiter(second, "api", 4, &concurrency.KeyedLimiterOptions{Total: 40, AdoptLimit: true})
	require.NoError(t, err)
	mail, err := concurrency.NewRateLimiter(second, "mail", concurrency.Rate{PerSecond: 100, Burst: 1}, &concurrency.RateLimiterOptions{AdoptRate: true})
	require.NoError(t, err)
	for range 2 {
		for _, sm := range []*concurrency.Semaphore{adopting(0), adopting(3), charge, adopting(5), keyed.Key("a"), keyed.Key("b")} {
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
		}
		require.NoError(t, mail.Wait(ctx))
	}
	logged := func() (all []map[string]any) {
		for _, line := range lines.FilterMessageSnippet("is in force, and not the one of this program").All() {
			fields := line.ContextMap()
			delete(fields, "namespace")
			delete(fields, "owner")
			all = append(all, fields)
		}
		return all
	}
	require.Eventually(t, func() bool { return len(logged()) >= 4 }, soon, tick)
	require.Equal(t, []map[string]any{
		{"name": "charge", "level": "", "in_etcd": int64(3), "in_program": int64(5), "changed_by": "SetLimit"},
		{"name": "api", "level": "key", "in_etcd": int64(2), "in_program": int64(4), "changed_by": "SetDefault"},
		{"name": "api", "level": "total", "in_etcd": int64(20), "in_program": int64(40), "changed_by": "SetLimit of Total"},
		{"name": "mail", "in_etcd": concurrency.Rate{PerSecond: 500, Burst: 50}, "in_program": concurrency.Rate{PerSecond: 100, Burst: 1}, "changed_by": "SetRate"},
	}, logged())

	require.NoError(t, charge.SetLimit(ctx, 4))
	require.NoError(t, acquire(t, ctx, adopting(5)).Release(ctx))
	require.Len(t, logged(), 5, "another one is logged again")
}
