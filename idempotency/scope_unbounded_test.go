package idempotency_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// D12: one tenant can stop all others if nothing bounds its records. A process with several tenants and
// no bound says so, once.
func TestScopesWithoutABound(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for bound, want := range map[int]int{0: 1, -1: 0, 100: 0} {
		core, lines := observer.New(zapcore.WarnLevel)
		in := f.instance(&concurrency.SessionOptions{Logger: zap.New(core)}, &idempotency.Options{MaxPerScope: bound, SingleTenant: true})
		request := func(scope string) {
			k := idempotency.Key{Scope: scope, Op: "pay", ID: fmt.Sprint(bound, scope, len(lines.All()))}
			require.NoError(t, begin(t, in, k).Release(ctxT(t)))
		}
		request("")
		request("")
		require.Empty(t, lines.All(), "one scope")
		for _, scope := range []string{"a", "b", "", "c"} {
			request(scope)
		}
		require.Len(t, lines.All(), want, "MaxPerScope %d", bound)
		if want > 0 {
			require.Contains(t, lines.All()[0].Message, "Options.MaxPerScope")
		}
	}
}
