package concurrency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// following returns a function that waits for a state of a key that has so many holders and waiters
// at each level.
func following(t testing.TB, states <-chan concurrency.Status) func(holders, forTotal, forKey int) concurrency.Status {
	return func(holders, forTotal, forKey int) concurrency.Status {
		t.Helper()
		for {
			st := got(t, states, "a state")
			is := [3]int{len(st.Holders)}
			for _, w := range st.Waiters {
				if w.WaitsFor == concurrency.LevelTotal {
					is[1]++
				} else {
					is[2]++
				}
			}
			require.Equal(t, is[0]+is[1], st.Used, "what waits for the total uses the key's limit")
			if is == [3]int{holders, forTotal, forKey} {
				return st
			}
		}
	}
}

// Watch of a key with a total shows both levels: a request that waits for the total is no holder, and
// becomes one when a permit of another key is released.
func TestWatchOfBothLevels(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(idle())
	watched, lim := totaled(t, s, "llm", 2, 2), totaled(t, other, "llm", 2, 2)
	x, y := acquire(t, ctx, lim.Key("x")), acquire(t, ctx, lim.Key("y"))
	states := make(chan concurrency.Status, 1000)
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		for st, err := range watched.Key("a").Watch(watching) {
			if err == nil {
				states <- st
			}
		}
	})
	state := following(t, states)
	state(0, 0, 0)
	a1 := ask(t, ctx, lim.Key("a"))
	state(0, 1, 0)
	a2 := ask(t, ctx, lim.Key("a"))
	state(0, 2, 0)
	a3 := ask(t, ctx, lim.Key("a"))
	state(0, 2, 1)
	require.NoError(t, x.Release(ctx)) // an event of the total alone
	p1 := granted(t, a1, "one is free")
	st := state(1, 1, 1)
	require.Equal(t, p1.Token(), st.Holders[0].Token)

	reads := c.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.Pass})
	require.NoError(t, lim.Total().SetLimit(ctx, 3)) // an event of the total's limit alone
	state(2, 0, 1)
	before := reads.Hits()
	for range 40 {
		_, err := lim.Key("z").TryAcquire(ctx)
		require.ErrorIs(t, err, concurrency.ErrFull)
		z, cancel := context.WithCancel(ctx)
		w := ask2(z, lim.Key("z"))
		waitsInTotal(t, ctx, lim, 1)
		cancel()
		require.ErrorIs(t, got(t, w, "it gave up").err, context.Canceled)
		waitsInTotal(t, ctx, lim, 0)
	}
	p2 := granted(t, a2, "the total was raised")
	require.NoError(t, p1.Release(ctx))
	p3 := granted(t, a3, "one is free")
	st = state(2, 0, 0)
	require.Less(t, reads.Hits()-before, 10, "requests of other keys cost no reads")
	require.NoError(t, y.Release(ctx))
	require.Equal(t, []int64{p2.Token(), p3.Token()}, []int64{st.Holders[0].Token, st.Holders[1].Token})
	require.NoError(t, lim.Key("a").EvictToken(ctx, p2.Token(), "test"))
	state(1, 0, 0)
	require.NoError(t, p3.Release(ctx))
	state(0, 0, 0)
	f.NoKeys("/queue/")
}

// A Watch of both levels ends with its ctx, and with the session.
func TestWatchOfBothLevelsEnds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 2, 2)
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	for _, err := range lim.Key("a").Watch(within) {
		if n++; n == 1 {
			require.NoError(t, err)
			cancel()
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, 2, n)
	var ended error
	for st, err := range lim.Key("a").Watch(ctx) {
		if err == nil {
			require.Equal(t, "llm/a", st.Name)
			require.NoError(t, s.Close(ctx))
		}
		ended = err
	}
	require.ErrorIs(t, ended, concurrency.ErrClosed)
}

// Watch of a key shows a changed default at once: by the default's own watch, and not when the queue
// is next listed. What it admits are holders.
func TestWatchShowsTheDefault(t *testing.T) {
	t.Parallel()
	for name, total := range map[string]int{"no total": 0, "with a total": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			other, _ := f.Session(idle())
			watched, lim := totaled(t, s, "llm", 1, total), totaled(t, other, "llm", 1, total)
			require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx)) // the default is stored
			states := make(chan concurrency.Status, 1000)
			watching, stop := context.WithCancel(ctx)
			var wg sync.WaitGroup
			defer wg.Wait()
			defer stop()
			wg.Go(func() {
				for st, err := range watched.Key("a").Watch(watching) {
					if err == nil {
						states <- st
					}
				}
			})
			until := func(limit, holders, waiters int) {
				t.Helper()
				for {
					st := got(t, states, "a state")
					require.LessOrEqual(t, st.Used, st.Limit, "no state mixes two defaults")
					if st.Limit == limit && len(st.Holders) == holders && len(st.Waiters) == waiters {
						return
					}
				}
			}
			until(1, 0, 0)
			granted(t, ask(t, ctx, lim.Key("a")), "it is free")
			waits := ask(t, ctx, lim.Key("a"))
			until(1, 1, 1)
			c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.FailWith, Times: -1, Match: listsOf("/key/")})
			require.NoError(t, lim.SetDefault(ctx, 7))
			until(7, 2, 0)
			granted(t, waits, "the default admits it")
		})
	}
}
