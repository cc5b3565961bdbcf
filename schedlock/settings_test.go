package schedlock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// The settings of a Job are stored with its fire times, in place of the period. A call that passes a tick has neither, and
// agrees with them.
func TestFireTimesInTheSettings(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	print := func(s Schedule, zone *time.Location) string {
		tt := timetable{schedule: s}
		require.Empty(t, tt.print(), "the zone is not known yet")
		tt.next(time.Now().In(zone))
		return request{settings: settings{atMost: time.Hour}, fires: tt.print()}.shared()
	}
	const (
		none   = "AtMost 1h0m0s, AtLeast 0s, Retries 0"
		golden = none + ", Every fire time like 2024-01-10T08:00:00Z and 2024-07-10T07:00:00Z, sampled 13a6e8ca"
		named  = golden + `, by "0 9 * * *" in Europe/Berlin`
	)
	require.Equal(t, golden, print(daily{}, berlin))
	require.Equal(t, named, print(Crontab{Text: " 0 9  * * *", Zone: berlin, Schedule: daily{}}, time.UTC))
	require.Equal(t, named, print(crontab.MustParse(" 0 9  * * *", berlin), time.UTC))

	for _, x := range [][3]string{{none, golden, golden}, {golden, none, golden}, {golden, golden, golden}, {golden, "", golden},
		{named, golden, golden}, {golden, named, named}} {
		both, ok := agree(x[0], x[1])
		require.True(t, ok, x)
		require.Equal(t, x[2], both)
		require.False(t, differ(x[0], x[1]))
	}
	utc := print(daily{}, time.UTC)
	_, ok := agree(golden, utc)
	require.False(t, ok)
	require.True(t, reschedules(golden, utc))
	for _, x := range [][2]string{{golden, none}, {golden, none + ", Every 1m0s"}, {none + ", Every 1m0s", golden}, {golden, ""}, {strings.Replace(golden, "1h", "2h", 1), utc}} {
		require.False(t, reschedules(x[0], x[1]), x)
	}
}

// K7, K8: processes agree on what a schedule does all day, and around the changes of the clocks. Where both
// have a text and a zone, these count, and other fire times are worth a warning.
func TestFireTimesThatDiffer(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	print := func(s Schedule) string {
		tt := timetable{schedule: s}
		tt.next(time.Now().In(berlin))
		return request{settings: settings{atMost: time.Hour}, fires: tt.print()}.shared()
	}
	spec := func(text string, s Schedule) Schedule { return Crontab{text, berlin, s} }
	spring := time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC)
	lazy := backward{grid(20 * time.Minute), spring.Add(-time.Hour), spring, -time.Hour} // leaves out the hour before
	weekends := at{berlin, func(t time.Time) bool { return t.Weekday() != time.Saturday }, hours(9)}
	for name, x := range map[string]struct {
		a, b    Schedule
		agree   bool
		differs bool
	}{
		"the same":                             {daily{}, at{berlin, nil, hours(9)}, true, false},
		"later in the day":                     {at{berlin, nil, hours(9, 10, 11, 12)}, at{berlin, nil, hours(9, 10, 11, 12, 18)}, false, false},
		"on Saturdays":                         {daily{}, weekends, false, false},
		"around a change of the clocks":        {grid(20 * time.Minute), lazy, false, false},
		"around a change, but of one text":     {spec("*/20 * * * *", grid(20*time.Minute)), spec("*/20 * * * *", lazy), true, true},
		"one text":                             {spec("0 9 * * *", daily{}), spec("0  9 * * * ", daily{}), true, false},
		"two texts":                            {spec("0 9 * * *", daily{}), spec("0 9 * * 0-6", daily{}), false, false},
		"a text and none":                      {spec("0 9 * * *", daily{}), daily{}, true, false},
		"a text of no known zone, and another": {Crontab{"0 9 * * *", time.Local, daily{}}, Crontab{"00 9 * * *", time.Local, daily{}}, true, false},
	} {
		mine, theirs := print(x.a), print(x.b)
		_, ok := agree(mine, theirs)
		require.Equal(t, x.agree, ok, "%s: %s %s", name, mine, theirs)
		require.Equal(t, x.differs, differ(mine, theirs), name)
	}
}

// The zone of a schedule, as far as it has one.
func TestZoneOfASchedule(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	type spec struct{ Location *time.Location } // as robfig's SpecSchedule has it
	type parsed struct {
		Schedule
		spec
	}
	require.Equal(t, berlin, zoneOf(&struct {
		Schedule
		Location *time.Location
	}{Location: berlin}))
	require.Nil(t, zoneOf(&struct {
		Schedule
		Location *time.Location
	}{Location: time.Local}))
	require.Equal(t, berlin, zoneOf(parsed{spec: spec{berlin}}))
	require.Nil(t, zoneOf(daily{}))
	require.Nil(t, zoneOf(Periods(time.Minute)))
	require.Equal(t, berlin, zoneOf(Crontab{Text: "CRON_TZ=Europe/Berlin 0 9 * * *", Schedule: daily{}}))
	require.Equal(t, berlin, zoneOf(Crontab{Text: "TZ=Asia/Tokyo 0 9 * * *", Zone: berlin, Schedule: daily{}}))
	require.Nil(t, zoneOf(Crontab{Text: "CRON_TZ=Nowhere/At_All 0 9 * * *", Schedule: daily{}}))
	require.Equal(t, berlin, zoneOf(crontab.MustParse("0 9 * * *", berlin)))
	require.Nil(t, zoneOf(crontab.MustParse("0 9 * * *", time.Local)), "each machine has its own")
}
