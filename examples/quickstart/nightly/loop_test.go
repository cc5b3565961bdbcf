package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A784: a process whose clock was two days ahead when it asked for the next fire time left out the nights between, after its
// clock had been set right.
func TestClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		now := func() time.Time {
			if time.Since(begun) < 90*time.Second {
				return time.Now().Add(48 * time.Hour)
			}
			return time.Now()
		}
		nightly := func(after time.Time) time.Time { return after.Truncate(24 * time.Hour).Add(24 * time.Hour) }
		require.True(t, reached(t.Context(), nightly, now))
		require.Equal(t, nightly(begun), now())
		require.False(t, reached(t.Context(), func(time.Time) time.Time { return time.Time{} }, now))
	})
}
