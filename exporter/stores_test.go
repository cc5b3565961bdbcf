package exporter_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

func request(id string) idempotency.Key {
	return idempotency.Key{Scope: "tenant", Op: "pay", ID: id}
}

// requests returns the series of a store, all states of it.
func requests(store string, states map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for _, state := range []string{"in_progress", "done", "failed", "released", "unreadable", "unknown", "orphaned"} {
		out[fmt.Sprintf("requests{%s,state=%q}", queue("store", store), state)] = states[state]
	}
	return out
}

// The metrics of a store follow its List: requests in progress, with an outcome, released, and lost under
// either policy.
func TestStore(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	st, err := idempotency.NewStore(s, "payments", nil)
	require.NoError(t, err)
	for i := range 3 {
		_, err := idempotency.Do(ctx, st, request(fmt.Sprint("done", i)), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return i, nil })
		require.NoError(t, err)
	}
	states := map[string]float64{"done": 3}
	e.shows(requests("payments", states))

	begin := func(st *idempotency.Store, id string) *idempotency.Attempt {
		at, _, err := st.Begin(ctx, request(id), "payload")
		require.NoError(t, err)
		return at
	}
	at := begin(st, "released")
	states["in_progress"] = 1
	e.shows(requests("payments", states))
	_, err = idempotency.Step(at, "s", func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.NoError(t, at.Release(ctx))
	states["in_progress"], states["released"] = 0, 1
	e.shows(requests("payments", states))

	for name, policy := range map[string]idempotency.LostPolicy{"unknown": idempotency.Refuse, "orphaned": idempotency.TakeOver} {
		o, c := f.Session(idle())
		other, err := idempotency.NewStore(o, "payments", &idempotency.Options{OnLost: policy})
		require.NoError(t, err)
		begin(other, name)
		states["in_progress"] = 1
		e.shows(requests("payments", states))
		f.crash(o, c)
		states["in_progress"], states[name] = 0, 1
		e.shows(requests("payments", states))
	}
	e.shows(map[string]float64{"requests_unknown_of_one_scope{" + queue("store", "payments") + "}": 1})
	f.export(s, nil).shows(requests("payments", states))
	listed := map[idempotency.State]int{}
	for r, err := range st.List(ctx, idempotency.Filter{}) {
		require.NoError(t, err)
		listed[r.State]++
	}
	require.Equal(t, map[idempotency.State]int{idempotency.Done: 3, idempotency.Released: 1, idempotency.Unknown: 2}, listed)

	for r, err := range st.List(ctx, idempotency.Filter{}) {
		require.NoError(t, err)
		require.NoError(t, st.Delete(ctx, r.Ref))
	}
	require.Eventually(t, func() bool {
		_, there := e.series()["requests{"+queue("store", "payments")+`,state="done"}`]
		return !there
	}, soon, look)
}

// The scope with the most requests of unknown outcome is counted, by no name: bad input of one tenant is seen (U6
// in internal/proof/tested-failures.md).
func TestUnknownOfOneScope(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	st, err := idempotency.NewStore(s, "payments", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	shows := func(n float64) {
		t.Helper()
		e.shows(map[string]float64{"requests_unknown_of_one_scope{" + queue("store", "payments") + "}": n})
	}
	key := func(scope string, n int) idempotency.Key {
		return idempotency.Key{Scope: scope, Op: "pay", ID: fmt.Sprint(n)}
	}
	for scope, many := range map[string]int{"a": 3, "b": 1, "c": 2} {
		for n := range many {
			at, _, err := st.Begin(ctx, key(scope, n), "payload")
			require.NoError(t, err)
			require.NoError(t, at.Abandon(ctx))
		}
	}
	shows(3)
	require.NoError(t, st.Resolve(ctx, st.Ref(key("a", 0)), idempotency.HasFailed("x")))
	require.NoError(t, st.Delete(ctx, st.Ref(key("a", 1)), idempotency.EvenIfAlive()))
	shows(2)
}

// A result in parts and a large record are read without their values, and the record counts.
func TestLargeResults(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	st, err := idempotency.NewStore(s, "large", nil)
	require.NoError(t, err)
	for _, size := range []int{10, 100 << 10, 300 << 10} {
		_, err := idempotency.Do(ctx, st, request(fmt.Sprint(size)), "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return make([]byte, size), nil })
		require.NoError(t, err)
	}
	e := f.export(s, nil)
	e.shows(requests("large", map[string]float64{"done": 3}))
	require.Equal(t, float64(len(f.Keys(""))), e.reaches(f)["keys{}"], "parts count as keys")
}
