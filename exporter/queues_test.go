package exporter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/exporter"
)

// agrees waits until the metrics of a queue say what its Status says.
func (r *running) agrees(kind string, st concurrency.Status) {
	r.t.Helper()
	weight := 0
	for _, w := range st.Waiters {
		weight += w.Weight
	}
	r.shows(of(queue(kind, st.Name), map[string]float64{
		"limit": float64(st.Limit), "held": float64(st.Used), "waiting": float64(len(st.Waiters)),
		"waiting_weight": float64(weight), "foreign_keys": float64(st.Foreign),
	}))
}

// A semaphore's metrics follow its Status: holders, waiters, weights, a limit that is lowered below what is
// held, foreign keys; and a new exporter shows the same as one that has watched.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	sm, err := concurrency.NewSemaphore(s, "charge", 3, nil)
	require.NoError(t, err)
	agrees := func() {
		t.Helper()
		st, err := sm.Status(ctx)
		require.NoError(t, err)
		e.agrees("semaphore", st)
		f.export(s, nil).agrees("semaphore", st)
	}
	one, two := acquire(t, ctx, sm), acquire(t, ctx, sm, concurrency.Weight(2))
	agrees()
	heavy, light := f.ask(ctx, sm, concurrency.Weight(2)), f.ask(ctx, sm)
	agrees()
	require.NoError(t, sm.SetLimit(ctx, 2))
	agrees()
	_, err = f.Client().Put(ctx, s.NamespacePrefix()+"semaphore/charge/queue/light/foreign", "x")
	require.NoError(t, err)
	agrees()
	require.NoError(t, sm.SetLimit(ctx, 4))
	require.NoError(t, two.Release(ctx))
	agrees()
	three := f.granted(heavy)
	agrees()
	require.NoError(t, one.Release(ctx))
	four := f.granted(light)
	agrees()
	require.NoError(t, three.Release(ctx))
	require.NoError(t, four.Release(ctx))
	agrees()
}

// A mutex and an election of one name are two queues. Without a request nothing of them is published.
func TestMutexAndElection(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	mu, err := concurrency.NewMutex(s, "x")
	require.NoError(t, err)
	el, err := concurrency.NewElection(s, "x")
	require.NoError(t, err)
	p, err := mu.Lock(ctx)
	require.NoError(t, err)
	wait, cancel := cancellable(t)
	ended := make(chan error, 1)
	go func() { _, err := mu.Lock(wait); ended <- err }()
	term, err := el.Campaign(ctx)
	require.NoError(t, err)
	e.shows(of(queue("mutex", "x"), map[string]float64{"limit": 1, "held": 1, "waiting": 1}))
	st, err := mu.Status(ctx)
	require.NoError(t, err)
	e.agrees("mutex", st)
	st, err = el.Status(ctx)
	require.NoError(t, err)
	e.agrees("election", st)
	cancel()
	require.Error(t, <-ended)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, term.Release(ctx))
	require.Eventually(t, func() bool {
		_, mutex := e.series()["held{"+queue("mutex", "x")+"}"]
		_, election := e.series()["held{"+queue("election", "x")+"}"]
		return !mutex && !election
	}, soon, look)
}

// A clock of the test's own shows what ages count from, and when a holder is overdue.
func TestAges(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	sm, err := concurrency.NewSemaphore(s, "x", 1, nil)
	require.NoError(t, err)
	p := acquire(t, ctx, sm, concurrency.MaxHold(time.Hour))
	w := f.ask(ctx, sm, concurrency.MaxHold(20*time.Minute))
	c := newClock()
	e := f.export(s, &exporter.Options{Now: c.now, Probe: 200 * time.Millisecond})
	of := func(name string) float64 { return e.series()[name+"{"+queue("semaphore", "x")+"}"] }
	e.reaches(f)

	c.add(10 * time.Minute)
	near(t, 600, of("oldest_hold_seconds"), "from the request")
	near(t, 600, of("oldest_wait_seconds"), "from the request")
	require.Equal(t, 3600.0, of("oldest_hold_max_hold_seconds"))
	require.Zero(t, of("oldest_unbounded_hold_seconds"))
	require.Zero(t, of("overdue_holders"))

	// An answer of etcd confirms that the request still waits, by the clock that was set.
	reached := e.series()["exporter_last_answer_timestamp_seconds{}"]
	require.Eventually(t, func() bool { return e.series()["exporter_last_answer_timestamp_seconds{}"] > reached+0.05 }, soon, look)
	require.NoError(t, p.Release(ctx))
	next := f.granted(w)
	e.shows(map[string]float64{"oldest_hold_max_hold_seconds{" + queue("semaphore", "x") + "}": 1200})
	require.Less(t, of("oldest_hold_seconds"), 60.0, "the exporter has seen it wait")
	require.Zero(t, of("oldest_wait_seconds"))
	c.add(19 * time.Minute)
	require.Zero(t, of("overdue_holders"))
	c.add(2 * time.Minute)
	require.Equal(t, 1.0, of("overdue_holders"))
	near(t, 21*60, of("oldest_hold_seconds"), "from the grant")

	// Another exporter has not seen the grant: the age includes the wait, but the holder is not overdue yet.
	late := f.export(s, &exporter.Options{Now: c.now})
	late.reaches(f)
	near(t, 31*60, late.series()["oldest_hold_seconds{"+queue("semaphore", "x")+"}"], "from the request")
	require.Zero(t, late.series()["overdue_holders{"+queue("semaphore", "x")+"}"])
	require.NoError(t, next.Release(ctx))
	e.shows(map[string]float64{"overdue_holders{" + queue("semaphore", "x") + "}": 0, "oldest_hold_seconds{" + queue("semaphore", "x") + "}": 0})
}

// The oldest hold without a MaxHold has an age of its own: an older one with a MaxHold does not hide it.
func TestUnboundedHold(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	sm, err := concurrency.NewSemaphore(s, "x", 2, nil)
	require.NoError(t, err)
	acquire(t, ctx, sm, concurrency.MaxHold(time.Hour))
	c := newClock()
	e := f.export(s, &exporter.Options{Now: c.now, Probe: 200 * time.Millisecond})
	of := func(name string) float64 { return e.series()[name+"{"+queue("semaphore", "x")+"}"] }
	e.reaches(f)
	acquire(t, ctx, sm)
	e.reaches(f)
	c.add(10 * time.Minute)
	require.Equal(t, 3600.0, of("oldest_hold_max_hold_seconds"), "of the older one")
	near(t, 600, of("oldest_unbounded_hold_seconds"), "of the other")
}

// A407: a limit that cannot be read counted as a foreign key, which an operator deletes: programs of a later release use it.
func TestUnreadableLimits(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	sm, err := concurrency.NewSemaphore(s, "charge", 3, nil)
	require.NoError(t, err)
	acquire(t, ctx, sm)
	lim, err := concurrency.NewKeyedLimiter(s, "api", 1, nil)
	require.NoError(t, err)
	acquire(t, ctx, lim.Key("a"))
	acquire(t, ctx, lim.Key("b"))
	unreadable := func(of string) string { return "unreadable_limits{" + of + "}" }
	semaphore, limiter := queue("semaphore", "charge"), queue("limiter", "api")
	require.NotContains(t, e.reaches(f), unreadable(semaphore))
	later := `{"v":2,"limit":3}`
	for _, key := range []string{"semaphore/charge/limit", "limiter/api/default"} {
		require.NotEmpty(t, f.Keys("/"+key), key)
		_, err = f.Client().Put(ctx, s.NamespacePrefix()+key, later)
		require.NoError(t, err)
	}
	got := e.shows(map[string]float64{
		unreadable(semaphore): 1, "foreign_keys{" + semaphore + "}": 0, "held{" + semaphore + "}": 1,
		unreadable(limiter): 1, "foreign_keys{" + limiter + "}": 0, "limiter_full_keys{" + limiter + "}": 0,
	})
	require.NotContains(t, got, "limit{"+semaphore+"}")
	_, err = f.Client().Delete(ctx, s.NamespacePrefix()+"semaphore/charge/limit")
	require.NoError(t, err)
	require.NotContains(t, e.reaches(f), unreadable(semaphore))
}
