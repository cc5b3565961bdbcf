package middleware

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within asserts that d is base with at most a quarter more, in the bounds.
func within(t *testing.T, base, d time.Duration, what string) {
	t.Helper()
	require.GreaterOrEqual(t, d, base, what)
	require.LessOrEqual(t, d, base+base/4, what)
}

// TestRetryAfterCountsThoseSentAway: clients that were refused are not in the queue, but they come
// back, so each is sent away for one turn longer than the one before.
func TestRetryAfterCountsThoseSentAway(t *testing.T) {
	t.Parallel()
	var r retries
	now := time.Now()
	// Three requests wait, and the queue takes 8 s to reach a fourth: 2 s for each.
	for i := range 5 {
		within(t, 8*time.Second+time.Duration(i)*2*time.Second, r.after(group{KeyFull, "k"}, 8*time.Second, 3, now), fmt.Sprint(i))
	}
	within(t, 8*time.Second, r.after(group{KeyFull, "other"}, 8*time.Second, 3, now), "another key has its own")
	now = now.Add(time.Minute)
	within(t, 8*time.Second, r.after(group{KeyFull, "k"}, 8*time.Second, 3, now), "those have come back")
	for range 1000 {
		require.LessOrEqual(t, r.after(group{KeyFull, "k"}, 8*time.Second, 3, now), time.Minute)
	}
	now = now.Add(49 * time.Second)
	within(t, 8*time.Second, r.after(group{KeyFull, "k"}, 8*time.Second, 3, now), "a crowd has no effect beyond the greatest value")
	within(t, time.Second, r.after(group{KeyFull, "fast"}, time.Millisecond, 0, now), "at least a second")
	within(t, 48*time.Second, r.after(group{KeyFull, "slow"}, time.Hour, 0, now), "at most a minute")
}

// TestRetryAfterWithoutEstimate: the value doubles under load, falls without, up to 32 s.
func TestRetryAfterWithoutEstimate(t *testing.T) {
	t.Parallel()
	var r retries
	g := group{why: Unavailable}
	now := time.Now()
	within(t, time.Second, r.after(g, 0, 0, now), "the first")
	var top time.Duration
	for range 200 * 10 { // ten refusals a second for 200 s
		now = now.Add(100 * time.Millisecond)
		top = r.after(g, 0, 0, now)
	}
	within(t, 32*time.Second, top, "doubled up to the greatest value")
	now = now.Add(10 * time.Second)
	d := r.after(g, 0, 0, now)
	require.Less(t, d, 41*time.Second)
	now = now.Add(time.Hour)
	within(t, time.Second, r.after(g, 0, 0, now), "it has fallen")
}

// TestRetryAfterIsJittered: clients that were refused together do not come back together.
func TestRetryAfterIsJittered(t *testing.T) {
	t.Parallel()
	seconds := map[int64]int{}
	for range 1000 {
		s := Seconds(jittered(10 * time.Second))
		require.GreaterOrEqual(t, s, int64(10))
		require.LessOrEqual(t, s, int64(13))
		seconds[s]++
	}
	require.Greater(t, len(seconds), 2)
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, time.Hour} {
		require.GreaterOrEqual(t, Seconds(jittered(d)), int64(1))
		require.LessOrEqual(t, Seconds(jittered(d)), int64(60))
	}
	require.LessOrEqual(t, Seconds(time.Hour), int64(60))
	require.GreaterOrEqual(t, Seconds(0), int64(1))
}

// TestRetryMemoryIsBounded: any number of keys are refused with bounded memory, and what is of no
// use any more is forgotten.
func TestRetryMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var r retries
	now := time.Now()
	for i := range 3 * mostGroups {
		r.after(group{KeyFull, fmt.Sprint(i)}, time.Second, 0, now)
		r.after(group{KeyFull, fmt.Sprint(i)}, 0, 0, now)
	}
	require.LessOrEqual(t, len(r.groups), mostGroups+1)
	r.after(group{KeyFull, "late"}, time.Second, 0, now.Add(time.Hour))
	require.Len(t, r.groups, 1)
}
