package schedlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The settings of a Job are stored with its fire times, in place of the period. A release that
// does not know them agrees, and leaves them as they are; and its own are agreed with here.
func TestFireTimesInTheSettings(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	print := func(s Schedule, zone *time.Location) string {
		tt := timetable{schedule: s}
		require.Empty(t, tt.print(), "the zone is not known yet")
		tt.next(time.Now().In(zone))
		return request{settings: settings{atMost: time.Hour}, fires: tt.print()}.shared()
	}
	const golden = "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every fire time like 2024-01-10T08:00:00Z and 2024-07-10T07:00:00Z (05d1265f)"
	require.Equal(t, golden, print(daily{}, berlin))

	before := func(mine, theirs string) (both string, ok bool) { // of the release before
		a, m, _ := strings.Cut(mine, ", Every ")
		b, t, _ := strings.Cut(theirs, ", Every ")
		return max(mine, theirs), theirs == "" || a == b && (m == t || m == "" || t == "")
	}
	const old = "AtMost 1h0m0s, AtLeast 0s, Retries 0"
	for _, f := range []func(mine, theirs string) (string, bool){before, agree} {
		for _, x := range [][2]string{{old, golden}, {golden, old}, {golden, golden}, {golden, ""}} {
			both, ok := f(x[0], x[1])
			require.True(t, ok)
			require.Equal(t, golden, both)
		}
	}
	utc := print(daily{}, time.UTC)
	_, ok := agree(golden, utc)
	require.False(t, ok)
	require.True(t, reschedules(golden, utc))
	for _, x := range [][2]string{{golden, old}, {golden, old + ", Every 1m0s"}, {old + ", Every 1m0s", golden}, {golden, ""}, {strings.Replace(golden, "1h", "2h", 1), utc}} {
		require.False(t, reschedules(x[0], x[1]), x)
	}
}
