package crontab

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones are the same on all machines

	"github.com/stretchr/testify/require"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func parsed(t testing.TB, spec string, loc *time.Location) Schedule {
	t.Helper()
	s, err := Parse(spec, loc)
	require.NoError(t, err, spec)
	return s
}

// The latest fire time is the last one of those that Next has.
func TestLatest(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	for spec, want := range map[string]string{
		"* * * * *": "2026-11-28 10:20", "*/15 * * * *": "2026-11-28 10:15", "30 2 * * *": "2026-11-28 02:30", "0 0 31 * *": "2026-10-31 00:00",
		"0 0 29 2 *": "2024-02-29 00:00", "20 10 28 11 *": "2026-11-28 10:20",
	} {
		got := parsed(t, spec, berlin).Latest(time.Date(2026, 11, 28, 10, 20, 0, 0, berlin))
		require.Equal(t, want, got.Format("2006-01-02 15:04"), spec)
	}
	require.True(t, Schedule{}.Latest(time.Now()).IsZero())
}

// The shortest distance of two fire times, also where it is on few days only.
func TestShortest(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	for spec, want := range map[string]time.Duration{
		"* * * * *": time.Minute, "*/7 * * * *": 4 * time.Minute, "0 9,18,20 * * *": 2 * time.Hour, "30 2 * * 1-5": 24 * time.Hour,
		"0 1,23 * * 5,6,2": 2 * time.Hour, "0 0 1 1 *": year, "0 0 29 2 *": year,
	} {
		require.Equal(t, want, parsed(t, spec, berlin).Shortest(), spec)
	}
}
