package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// The queue with the oldest wait is first; without a terminal the table is printed once.
func TestTop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	ctx := testkit.Context(t)
	s := f.session("web-7")
	m, err := concurrency.NewMutex(s, "report")
	require.NoError(t, err)
	f.permit(m.Lock(ctx))
	sm, err := concurrency.NewSemaphore(s, "stopped", 3, nil)
	require.NoError(t, err)
	require.NoError(t, f.permit(sm.Acquire(ctx)).Release(ctx))
	require.NoError(t, sm.SetLimit(ctx, 0))
	l, err := concurrency.NewKeyedLimiter(s, "api", 5, nil) // without a total
	require.NoError(t, err)
	f.permit(l.Key("tenant-7").Acquire(ctx))
	f.shell("top -N test")
	f.shell("top -N test --rows 1 -o json")
	f.shell("top -N test --every 10ms")
	f.golden("top")
}
