package silence

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A711: a pause of the process is no silence of etcd's. Its timers fire before it has read what came meanwhile: the part of
// the wait in which it was paused does not count.
func TestPauseDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := Start(5*time.Second, func(Part) bool { return true })
		defer c.Stop()
		c.timer.Stop()
		at := time.Now()
		after := func(d time.Duration) (Part, bool) { at = at.Add(d); return c.passed(at) }
		for n := range 9 {
			p, ok := after(500 * time.Millisecond)
			require.True(t, ok)
			require.Equal(t, time.Duration(n+1)*500*time.Millisecond, p.Ran)
		}
		p, ok := after(time.Hour)
		require.False(t, ok, "it was paused in the last part")
		require.Equal(t, 4500*time.Millisecond, p.Ran)
		p, ok = after(600 * time.Millisecond)
		require.True(t, ok, "a busy computer")
		require.Equal(t, 5*time.Second, p.Ran)
	})
	require.True(t, counts(130*time.Millisecond, 30*time.Millisecond))
	require.False(t, counts(131*time.Millisecond, 30*time.Millisecond))
	require.True(t, counts(750*time.Millisecond, longestPart))
	require.False(t, counts(751*time.Millisecond, longestPart))
}

// A clock measures a time that is no multiple of its parts, and what has passed of a part when it is stopped.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []time.Duration
		c := Start(5200*time.Millisecond, func(p Part) bool {
			require.Equal(t, time.Now(), p.To)
			got = append(got, p.Ran)
			return true
		})
		time.Sleep(6 * time.Second)
		p, ok := c.Stop()
		require.True(t, ok)
		require.Equal(t, 6*time.Second, p.Ran)
		synctest.Wait() // for the race detector: the clock's goroutine has ended
		require.Len(t, got, 12)
		require.Equal(t, 5200*time.Millisecond, got[10])
		_, ok = c.Stop()
		require.False(t, ok)

		ctx, cancel := Within(t.Context(), 5200*time.Millisecond)
		defer cancel()
		begun := time.Now()
		<-ctx.Done()
		require.Equal(t, 5200*time.Millisecond, time.Since(begun))
		require.Equal(t, context.DeadlineExceeded, ctx.Err())

		ctx, cancel = Within(t.Context(), time.Second)
		cancel()
		require.Equal(t, context.Canceled, ctx.Err())
	})
}
