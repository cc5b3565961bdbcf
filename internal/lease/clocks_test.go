package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A duration is the greatest that any clock shows: one stops while the machine is
// suspended, one can be set, and one is there on Linux only.
func TestAge(t *testing.T) {
	t.Parallel()
	m := Now()
	wall := Moment{Time: m.Round(0), Boot: m.Boot} // without the monotonic clock
	later := func(m Moment, d, boot time.Duration) Moment { return Moment{Time: m.Add(d), Boot: m.Boot + boot} }
	m.Boot, wall.Boot = 100*time.Hour, 100*time.Hour
	require.Equal(t, time.Minute, m.Age(later(m, time.Minute, time.Minute)))
	require.Equal(t, time.Hour, m.Age(later(m, time.Minute, time.Hour)), "suspended, and the wall clock set back")
	require.Equal(t, time.Hour, m.Age(later(m, time.Hour, time.Minute)))
	require.Equal(t, time.Hour, wall.Age(later(wall, -time.Hour, time.Hour)), "the wall clock set back")
	m.Boot = 0
	require.Equal(t, time.Minute, m.Age(later(m, time.Minute, time.Hour)), "no such clock")
	require.Greater(t, Moment{}.Age(Now()), 100*365*24*time.Hour)
}
