package exporter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A431: keys of another program outside of queues were in no metric. Those of a job have its name, the others none.
func TestForeignKeysOutsideOfQueues(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	before := e.reaches(f)
	require.NotContains(t, before, "foreign_keys{"+queue("", "")+"}")
	for _, key := range []string{"job/nightly/junk", "job/nightly/run/zzz", "idempotency/orders/junk", "session/xyz", "zzz/unknown"} {
		_, err := f.Client().Put(ctx, s.NamespacePrefix()+key, "x")
		require.NoError(t, err)
	}
	e.shows(of(queue("job", "nightly"), map[string]float64{"foreign_keys": 2}))
	e.shows(of(queue("", ""), map[string]float64{"foreign_keys": 3}))
}

// A435: a key that is paused by a limit of its own had the others ring.
func TestPausedKeys(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, nil)
	require.NoError(t, err)
	bad := lim.Key("bad")
	require.NoError(t, bad.SetLimit(ctx, 0, concurrency.CreateLimit()))
	f.ask(ctx, bad)
	acquire(t, ctx, lim.Key("good"))
	e.shows(of(queue("limiter", "api"), map[string]float64{"limiter_paused_keys": 1, "limiter_full_keys": 0, "oldest_wait_seconds": 0, "waiting": 1, "held": 1}))
}
