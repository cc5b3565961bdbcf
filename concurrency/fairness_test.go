package concurrency_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// N6: while the limits of the greedy keys leave a slot of the total free, the quiet keys do not wait,
// although no permit of a greedy one is ever released and many more wait.
func TestTrapN6Quiet(t *testing.T) {
	t.Parallel()
	const total = 10
	for name, caps := range map[string][]int{"one greedy": {8}, "two": {5, 4}, "nine": {1, 1, 1, 1, 1, 1, 1, 1, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, _ := f.Session(idle())
			other, _ := f.Session(idle())
			greedy, quiet := totaled(t, s, "llm", 1, total), totaled(t, other, "llm", 1, total)
			var held []*concurrency.Permit
			var waiters []<-chan answer
			for i, n := range caps {
				sm := greedy.Key(fmt.Sprint("greedy-", i))
				require.NoError(t, sm.SetLimit(ctx, n, concurrency.CreateLimit()))
				for range n {
					held = append(held, acquire(t, ctx, sm))
				}
				for range 10 {
					waiters = append(waiters, ask2(ctx, sm))
				}
			}
			f.keys("/queue/", 2*len(held)+len(waiters))
			for i := range 20 {
				require.NoError(t, acquire(t, ctx, quiet.Key(fmt.Sprint("quiet-", i%4))).Release(ctx))
			}
			st, err := quiet.Total().Status(ctx)
			require.NoError(t, err)
			require.Equal(t, []int{len(held), 0}, []int{st.Used, len(st.Waiters)}, "the greedy ones wait at their keys")
			for _, w := range waiters {
				waiting(t, w, "its key is full")
			}
		})
	}
}

// N6: if the limit of a greedy key is the total, a quiet one waits for one of its permits, and is
// next however many of the greedy wait.
func TestTrapN6NextInLine(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	greedy, quiet := totaled(t, s, "llm", 3, 3), totaled(t, other, "llm", 3, 3)
	held := acquire(t, ctx, greedy.Key("g"))
	for range 2 {
		acquire(t, ctx, greedy.Key("g"))
	}
	var waiters []<-chan answer
	for range 20 {
		waiters = append(waiters, ask2(ctx, greedy.Key("g")))
	}
	f.keys("/queue/", 2*3+len(waiters))
	q := ask2(ctx, quiet.Key("q"))
	f.keys("/total/queue/", 4)
	waiting(t, q, "the total is full")
	require.NoError(t, held.Release(ctx))
	granted(t, q, "the first of the total's queue")
	for _, w := range waiters {
		waiting(t, w, "the total is full again")
	}
}

// keys waits until there are as many keys that contain a text.
func (f fixture) keys(part string, n int) {
	f.T.Helper()
	require.Eventually(f.T, func() bool { return len(f.Keys(part)) == n }, soon, tick, "%d keys with %q", n, part)
}
