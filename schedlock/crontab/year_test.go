package crontab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/crons"
)

// hourly is how often a line that fires each hour fires in a year, at most.
const hourly = 366 * 24

// A year of fire times of thirty public crontab lines, in sixteen zones, is that of cronie 1.7.2 itself. -short has a zone
// where the clock is changed by half an hour, and one where it is at midnight, of lines that fire each hour at most.
func TestYearAsCronie(t *testing.T) {
	t.Parallel()
	zones := crons.Zones
	if testing.Short() {
		zones = []string{"Australia/Lord_Howe", "America/Havana"}
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			windows := crons.Windows(loc)
			plans, err := crons.Plans(name, windows)
			require.NoError(t, err)
			require.Len(t, plans, 30)
			for _, want := range plans {
				if testing.Short() && want.Others > hourly {
					continue
				}
				got := crons.NewPlan(name, want.Line, windows, crons.Year(parsed(t, want.Line, loc).Next, loc))
				require.Equal(t, want.String(windows), got.String(windows))
			}
		})
	}
}

// A country that changes its standard time: cronie keeps the offset from UTC that it has, since there is no summer time on
// either side, and a line fires an hour off until cronie is started again (findings/cronie-does-not-notice-a-new-standard-time.sh).
// Here it fires by the new time.
func TestNewStandardTime(t *testing.T) {
	t.Parallel()
	almaty := zone(t, "Asia/Almaty") // on 1 March 2024, +06 to +05
	s := parsed(t, "30 2 * * *", almaty)
	at := time.Date(2024, 2, 28, 12, 0, 0, 0, almaty)
	var got []string
	for range 3 {
		at = s.Next(at)
		got = append(got, at.Format("02 15:04 -0700"))
	}
	require.Equal(t, []string{"29 02:30 +0600", "01 02:30 +0500", "02 02:30 +0500"}, got)
}
