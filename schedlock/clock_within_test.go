package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// K12: a clock is kept within what others have published within the last beat; one wrong clock among them has no
// part in it.
func TestClockWithinThoseOfTheFleet(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	at := func(seconds ...int) (out []time.Time) {
		for _, s := range seconds {
			out = append(out, now.Add(time.Duration(s)*time.Second))
		}
		return out
	}
	for _, x := range []struct {
		seen []time.Time
		want int
	}{
		{nil, 0},
		{at(0), 0},
		{at(-59), 0},
		{at(9), 0},
		{at(-70), 0},
		{at(-71), -1},
		{at(-3600), -3530},
		{at(11), 11},
		{at(3600), 3600},
		{at(-10, -20, 3600), 0},
		{at(-10, -20, -3600), 0},
		{at(-30, 3600), 0},
		{at(3600, 3601, 3602, -5), 3600},
	} {
		require.Equal(t, at(x.want)[0], within(now, x.seen), x.seen)
	}
}
