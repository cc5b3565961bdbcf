package ticks_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/ticks"
)

// berlin returns the zone Europe/Berlin from a file of a format: slim has the rule for the changes of the clock to come, and fat the
// changes until 2037.
func berlin(t *testing.T, format string) *time.Location {
	t.Helper()
	b, err := os.ReadFile("testdata/berlin-" + format)
	require.NoError(t, err)
	zone, err := time.LoadLocationFromTZData("Europe/Berlin", b)
	require.NoError(t, err)
	return zone
}

// When the clock of a zone is changed does not depend on the format of the zone's file, also on the last day of a leap year (A468 in
// internal/proof/tested-failures.md).
func TestOffsetOfBothFormats(t *testing.T) {
	t.Parallel()
	slim, fat := berlin(t, "slim"), berlin(t, "fat")
	for at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2045; at = at.Add(5 * time.Hour) {
		_, next := ticks.Offset(at.In(slim))
		_, want := ticks.Offset(at.In(fat))
		require.True(t, want.Equal(next), "after %s: %s and %s", at, next, want)
		if next.IsZero() {
			continue
		}
		require.True(t, next.After(at))
		_, before := next.Add(-time.Second).Zone()
		_, after := next.Zone()
		require.NotEqual(t, before, after, at)
	}
}

// The offset of a zone without changes never changes.
func TestOffsetWithoutChanges(t *testing.T) {
	t.Parallel()
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 3600)} {
		began, changes := ticks.Offset(time.Date(2024, 12, 31, 12, 0, 0, 0, zone))
		require.Zero(t, began)
		require.Zero(t, changes)
	}
}
