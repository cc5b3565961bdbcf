package hook

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/observe"
)

// A756: hooks that panic at each call log one line a minute each, with the number since the last one; each panic is counted and
// reported.
func TestPanicsAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.WarnLevel)
		var events int
		s := New([]observe.Hooks{
			{Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) { panic("a") }},
			{Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) {
				return nil, func(observe.Outcome) { panic("b") }
			}},
			{Start: func(context.Context, observe.Call) (context.Context, func(observe.Outcome)) { panic("c") }},
			{Event: func(_ context.Context, e observe.Event) {
				if _, ok := e.(observe.HookPanicked); ok {
					events++
				}
			}},
		}, "ns", zap.New(core))
		said := func() (all []int64) {
			for _, line := range lines.TakeAll() {
				all = append(all, line.ContextMap()["panics"].(int64))
			}
			return all
		}
		calls := func(n int) {
			for range n {
				_, span := s.Start(t.Context(), observe.Call{})
				span.End(observe.Outcome{})
			}
		}
		calls(100)
		require.Equal(t, slices.Repeat([]int64{1}, 3), said())
		time.Sleep(saidAgain - 1)
		calls(1)
		require.Empty(t, said())
		time.Sleep(1)
		calls(100)
		require.Equal(t, slices.Repeat([]int64{101}, 3), said())
		require.EqualValues(t, 3*201, s.Panics())
		require.Equal(t, 3*201, events)
	})
}
