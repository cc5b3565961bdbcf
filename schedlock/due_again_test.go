package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// A claim that is taken back leaves its tick due if that is a fire time. The tick of a trigger is none: it would be overdue
// until the next start.
func TestDueAgain(t *testing.T) {
	t.Parallel()
	nights, err := crontab.Parse("0 9 * * *", time.UTC)
	require.NoError(t, err)
	nine := time.Date(2026, 3, 6, 9, 0, 0, 0, time.UTC)
	times := &timetable{schedule: nights, zone: time.UTC}
	plan := times.plan(nine).Encode()
	for name, tt := range map[string]struct {
		plan string
		tick time.Time
		due  bool
	}{
		"a fire time":        {plan, nine, true},
		"a trigger":          {plan, nine.Add(90 * time.Minute), false},
		"a second before":    {plan, nine.Add(-time.Second), false},
		"no plan was stored": {"", nine, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := times.dueAgain(tt.plan, tt.tick)
			require.Equal(t, tt.due, got != "")
			if tt.due {
				p, _ := record.DecodePlan([]byte(got))
				require.Equal(t, tt.tick.UnixMilli(), p.DueMS)
			}
		})
	}
}
