package ticks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/ticks"
)

func at(text string) time.Time {
	t, err := time.Parse("15:04:05", text)
	if err != nil {
		panic(err)
	}
	return t.AddDate(2026, 0, 0)
}

// Fire times are multiples of the period, before the epoch as well.
func TestFireTimes(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{{"10:00:00", "10:00:00", "10:05:00"}, {"10:04:59", "10:00:00", "10:05:00"}, {"10:05:01", "10:05:00", "10:10:00"}} {
		require.Equal(t, at(c[1]), ticks.At(5*time.Minute, at(c[0])))
		require.Equal(t, at(c[2]), ticks.Next(5*time.Minute, at(c[0])))
	}
	require.Equal(t, time.Unix(-10, 0).UTC(), ticks.At(10*time.Second, time.Unix(-3, 0)))
}

// Fire times between two records were skipped. If the former run had not ended by the last of them, that is
// the reason; otherwise none is stored. A tick by hand is none of the period's.
func TestBetween(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		former, end, next, first, last string
		n                              int
		active                         bool
	}{
		"none":                       {former: "10:00:00", end: "10:00:01", next: "10:05:00"},
		"one":                        {"10:00:00", "10:00:01", "10:10:00", "10:05:00", "10:05:00", 1, false},
		"while the run was active":   {"10:00:00", "10:12:00", "10:15:00", "10:05:00", "10:10:00", 2, true},
		"the last one after its end": {"10:00:00", "10:07:00", "10:15:00", "10:05:00", "10:10:00", 2, false},
		"ended at the last one":      {"10:00:00", "10:10:00", "10:15:00", "10:05:00", "10:10:00", 2, true},
		"before a tick by hand":      {"10:00:00", "10:00:01", "10:06:30", "10:05:00", "10:05:00", 1, false},
		"after a tick by hand":       {former: "10:06:30", end: "10:06:31", next: "10:10:00"},
		"the end is not stored":      {"10:00:00", "", "10:10:00", "10:05:00", "10:05:00", 1, false},
	} {
		var end time.Time
		if c.end != "" {
			end = at(c.end)
		}
		got := ticks.Between(5*time.Minute, at(c.former), end, at(c.next))
		require.Equal(t, c.n, got.Count, name)
		if c.n == 0 {
			continue
		}
		require.Equal(t, []time.Time{at(c.first), at(c.last)}, []time.Time{got.First, got.Last}, name)
		require.Equal(t, c.active, got.Why == "the run before was active", name)
	}
}

// A tick counts as one that no process starts when it has been due for a while.
func TestUnstarted(t *testing.T) {
	t.Parallel()
	due := at("10:00:00")
	require.Zero(t, ticks.Unstarted(time.Time{}, due), "no tick is known")
	require.Zero(t, ticks.Unstarted(due, at("09:59:00")))
	require.Zero(t, ticks.Unstarted(due, at("10:00:29")), "a process may be about to start it")
	require.Equal(t, due, ticks.Unstarted(due, at("10:00:30")))
}
