package exporter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// The keys of a limiter are added up, the total is a queue of its own. Held at a key is what Status calls
// Used there.
func TestLimiterWithTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	lim, err := concurrency.NewKeyedLimiter(s, "llm", 2, &concurrency.KeyedLimiterOptions{Total: 3})
	require.NoError(t, err)
	a, b, c := lim.Key("tenant-a"), lim.Key("tenant-b"), lim.Key("tenant-c")
	p := acquire(t, ctx, a)
	acquire(t, ctx, a, concurrency.MaxHold(time.Hour))
	acquire(t, ctx, b)
	full := f.ask(ctx, a)    // waits at its key
	inTotal := f.ask(ctx, b) // is admitted at its key and waits in the total
	e.shows(of(queue("limiter", "llm"), map[string]float64{"held": 4, "limiter_own_limits": 0}))
	require.NoError(t, c.SetLimit(ctx, 1))
	e.shows(of(queue("limiter", "llm"), map[string]float64{"limiter_own_limits": 1, "held": 4, "waiting": 1, "waiting_weight": 1, "foreign_keys": 0}))
	got := e.shows(of(queue("limiter_total", "llm"), map[string]float64{"limit": 3, "held": 3, "waiting": 1, "waiting_weight": 1}))
	e.shows(of(queue("limiter", "llm"), map[string]float64{"limiter_default_limit": 2, "limiter_keys": 2, "limiter_full_keys": 2}))
	require.NotContains(t, got, "limit{"+queue("limiter", "llm")+"}", "each key has one of its own")
	require.NotContains(t, got, "overdue_holders{"+queue("limiter", "llm")+"}", "permits are held in the total")
	require.Contains(t, got, "overdue_holders{"+queue("limiter_total", "llm")+"}")
	var used, waiting int
	for _, sm := range []*concurrency.Semaphore{a, b} {
		st, err := sm.Status(ctx)
		require.NoError(t, err)
		used += st.Used
		for _, w := range st.Waiters {
			if w.WaitsFor == concurrency.LevelKey {
				waiting++
			}
		}
	}
	require.Equal(t, []int{4, 1}, []int{used, waiting}, "Status says the same")

	require.NoError(t, lim.SetDefault(ctx, 3)) // it counts for keys that do not change
	e.shows(of(queue("limiter", "llm"), map[string]float64{"held": 5, "waiting": 0}))
	e.shows(of(queue("limiter", "llm"), map[string]float64{"limiter_default_limit": 3, "limiter_full_keys": 1}))
	require.NoError(t, p.Release(ctx))
	q := f.granted(inTotal)
	require.NoError(t, q.Release(ctx))
	f.granted(full)
	e.shows(of(queue("limiter_total", "llm"), map[string]float64{"held": 3, "waiting": 0}))
}

// A limiter without a total: its keys hold, so holds are added up over them.
func TestLimiterWithoutTotal(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim, err := concurrency.NewKeyedLimiter(s, "api", 1, nil)
	require.NoError(t, err)
	var first *concurrency.Permit
	for i := range 5 {
		p := acquire(t, ctx, lim.Key(fmt.Sprintf("tenant-%d", i)), concurrency.MaxHold(time.Duration(5-i)*time.Hour))
		if first == nil {
			first = p
		}
	}
	e := f.export(s, nil)
	e.shows(of(queue("limiter", "api"), map[string]float64{"held": 5, "waiting": 0, "overdue_holders": 0, "oldest_hold_max_hold_seconds": 5 * 3600}))
	e.shows(of(queue("limiter", "api"), map[string]float64{"limiter_keys": 5, "limiter_full_keys": 5}))
	require.NoError(t, first.Release(ctx))
	got := e.shows(of(queue("limiter", "api"), map[string]float64{"held": 4, "oldest_hold_max_hold_seconds": 4 * 3600}))
	require.NotContains(t, got, "held{"+queue("limiter_total", "api")+"}")
	require.Equal(t, 4.0, got["limiter_keys{"+queue("limiter", "api")+"}"])
}

// The shares of a rate are a queue of the kind rate.
func TestRate(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	r, err := concurrency.NewRateLimiter(s, "mails", concurrency.Rate{PerSecond: 10, Burst: 10}, nil)
	require.NoError(t, err)
	require.NoError(t, r.Wait(ctx))
	got := e.reaches(f)
	require.Contains(t, got, "limit{"+queue("rate", "mails")+"}")
	require.Positive(t, got["limit{"+queue("rate", "mails")+"}"])
	require.Equal(t, 10.0, got["rate_per_second{"+queue("rate", "mails")+"}"])
}
