package rate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDemand(t *testing.T) {
	t.Parallel()
	var d Demand
	require.Zero(t, d.PerSecond(at(0)))
	for i := range 50 { // 100 per second
		d.Add(at(0.01 * float64(i)))
	}
	require.Equal(t, 100.0, d.PerSecond(at(0.495)))
	require.Equal(t, 100.0, d.PerSecond(at(0.5)), "those of the span before")
	require.Equal(t, 100.0, d.PerSecond(at(0.9)))
	d.Add(at(0.9))
	require.Equal(t, 2.0, d.PerSecond(at(1.0)), "a span without the others")
	require.Zero(t, d.PerSecond(at(9)))
	require.Equal(t, 8.1, d.Idle(at(9)).Seconds())
}
