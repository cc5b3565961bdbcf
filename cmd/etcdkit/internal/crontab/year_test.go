package crontab

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/crons"
)

// A year of fire times of thirty public crontab lines, in sixteen zones, is that of cronie 1.7.2 itself. -short has a zone
// where the clock is changed by half an hour, and one where it is at midnight.
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
				got := crons.NewPlan(name, want.Line, windows, crons.Year(parsed(t, want.Line, loc).Next, loc))
				require.Equal(t, want.String(windows), got.String(windows))
			}
		})
	}
}
