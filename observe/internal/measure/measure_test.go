package measure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/observe"
)

// Each instrument has a name of its own, what it means, a unit, and buckets if it is a histogram.
func TestInstruments(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, i := range All {
		require.False(t, names[i.Name], i.Name)
		names[i.Name] = true
		require.NotEmpty(t, i.Help, i.Name)
		require.NotEmpty(t, i.Unit, i.Name)
		require.Equal(t, i.Type == Histogram, len(i.Bounds) > 0, i.Name)
		require.Equal(t, Namespace, i.Labels[0], i.Name)
	}
}

// A183 in internal/proof/tested-failures.md: a job is late after its fire time, and never within a period.
func TestJobDelay(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]int{0: 1, time.Hour: 0} {
		delays := 0
		m := New(1, func(_ context.Context, i *Instrument, value float64, _ Labels) {
			if i == jobDelay {
				delays++
				require.Greater(t, value, 1000.)
			}
		})
		m.Begin(t.Context(), observe.Call{Op: observe.Claim, Kind: observe.Job, Name: "report", Every: every})(
			observe.Outcome{Result: observe.Granted, Tick: time.Now().Add(-30 * time.Minute)})
		require.Equal(t, want, delays, every)
	}
}
