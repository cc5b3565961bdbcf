package idempotency

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// One at a time has the turn, all that wait get it, and the end of ctx ends a wait.
func TestTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tn turn
		var wg sync.WaitGroup
		var has, most, had int
		for range 10 {
			wg.Go(func() {
				if !tn.take(t.Context()) {
					t.Error("not taken")
				}
				has++
				most, had = max(most, has), had+1
				time.Sleep(time.Second)
				has--
				tn.free()
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.False(t, tn.take(ctx))
		begun := time.Now()
		wg.Wait()
		require.Equal(t, 10*time.Second-time.Millisecond, time.Since(begun))
		require.Equal(t, []int{10, 1}, []int{had, most})
		require.True(t, tn.take(t.Context()))
	})
}

// The end of what attempts depend on ends all of them that are in progress, and only those.
func TestGroundEndsAll(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		g := &ground{}
		attempts := make([]*Attempt, 4)
		for i := range attempts {
			attempts[i] = &Attempt{}
			g.add(attempts[i])
		}
		g.remove(attempts[n])
		g.remove(attempts[n]) // settled twice, as after an outcome that was written in the background
		listed := map[*Attempt]bool{}
		for a := g.first; a != nil; a = a.on.next {
			listed[a] = true
		}
		for i, a := range attempts {
			require.Equal(t, i != n, listed[a], "%d of %d", i, n)
		}
	}
}
