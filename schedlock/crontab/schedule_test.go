package crontab

import (
	"strings"
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

// What a schedule fires at, by its text; times are of the zone of the schedule.
func TestNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ zone, spec, from, want string }{
		"a minute later":                       {"UTC", "* * * * *", "2026-11-28 00:00 +0000", "28 00:01 UTC, 28 00:02 UTC"},
		"steps begin anew each hour":           {"UTC", "*/45 * * * *", "2026-11-28 00:00 +0000", "28 00:45 UTC, 28 01:00 UTC, 28 01:45 UTC"},
		"the 31st":                             {"UTC", "0 0 31 * *", "2026-11-28 00:00 +0000", "31 00:00 UTC, 31 00:00 UTC, 31 00:00 UTC"},
		"either day":                           {"UTC", "0 12 1-3 * mon", "2026-11-28 00:00 +0000", "30 12:00 UTC, 01 12:00 UTC, 02 12:00 UTC, 03 12:00 UTC, 07 12:00 UTC"},
		"a star with a step, and a weekday":    {"UTC", "0 12 */2 * 1", "2026-11-28 00:00 +0000", "07 12:00 UTC, 21 12:00 UTC"},
		"a weekday of a star with a step":      {"UTC", "0 12 1 * */2", "2026-11-28 00:00 +0000", "01 12:00 UTC, 01 12:00 UTC"},
		"7 is Sunday":                          {"UTC", "0 0 * * 7", "2026-11-28 00:00 +0000", "29 00:00 UTC, 06 00:00 UTC"},
		"5-7":                                  {"UTC", "0 0 * * 5-7", "2026-11-28 00:00 +0000", "29 00:00 UTC, 04 00:00 UTC, 05 00:00 UTC, 06 00:00 UTC"},
		"names":                                {"UTC", "0 0 1 JAN,Jul *", "2026-11-28 00:00 +0000", "01 00:00 UTC, 01 00:00 UTC"},
		"@hourly":                              {"UTC", "@hourly", "2026-11-28 00:30 +0000", "28 01:00 UTC"},
		"@weekly":                              {"UTC", "@weekly", "2026-11-28 00:30 +0000", "29 00:00 UTC"},
		"02:30 in spring":                      {"Europe/Berlin", "30 2 * * *", "2027-03-27 00:00 +0100", "27 02:30 CET, 28 03:00 CEST, 29 02:30 CEST"},
		"two times that are left out":          {"Europe/Berlin", "0,30 2 * * *", "2027-03-28 00:00 +0100", "28 03:00 CEST, 29 02:00 CEST"},
		"one left out, and the moment":         {"Europe/Berlin", "0 2,3 * * *", "2027-03-28 00:00 +0100", "28 03:00 CEST, 29 02:00 CEST"},
		"02:30 in autumn":                      {"Europe/Berlin", "30 2 * * *", "2027-10-30 12:00 +0200", "31 02:30 CEST, 01 02:30 CET"},
		"asked between the two 02:30":          {"Europe/Berlin", "30 2 * * *", "2027-10-31 02:10 +0100", "01 02:30 CET"},
		"03:00 in autumn":                      {"Europe/Berlin", "0 3 * * *", "2027-10-30 12:00 +0200", "31 03:00 CET"},
		"hourly in spring":                     {"Europe/Berlin", "0 * * * *", "2027-03-28 00:30 +0100", "28 01:00 CET, 28 03:00 CEST"},
		"hourly in autumn":                     {"Europe/Berlin", "0 * * * *", "2027-10-31 01:30 +0200", "31 02:00 CEST, 31 02:00 CET, 31 03:00 CET"},
		"each second hour in spring":           {"Europe/Berlin", "0 */2 * * *", "2027-03-28 00:00 +0100", "28 04:00 CEST"},
		"all hours by number in spring":        {"Europe/Berlin", "5 1-4 * * *", "2027-03-28 00:00 +0100", "28 01:05 CET, 28 03:00 CEST, 28 03:05 CEST, 28 04:05 CEST"},
		"midnight where there is none":         {"America/Santiago", "0 0 * * *", "2026-09-05 12:00 -0400", "06 01:00 -03, 07 00:00 -03"},
		"half an hour forward":                 {"Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00 +1030", "04 02:30 +11, 05 02:15 +11"},
		"half an hour back":                    {"Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00 +1100", "05 01:45 +11, 06 01:45 +1030"},
		"the midnights after half an hour":     {"Australia/Lord_Howe", "0 0 * * *", "2026-04-04 12:00 +1100", "05 00:00 +11, 06 00:00 +1030, 07 00:00 +1030"},
		"the last day of a leap year":          {"Europe/Berlin", "0 12 * * *", "2040-12-30 13:00 +0100", "31 12:00 CET, 01 12:00 CET"}, // see findings/go-zonebounds-end-before-the-instant.sh
		"each 15 minutes in both autumn hours": {"America/New_York", "*/30 1 * * *", "2027-11-07 00:00 -0400", "07 01:00 EDT, 07 01:30 EDT, 07 01:00 EST, 07 01:30 EST"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parsed(t, c.spec, zone(t, c.zone))
			at, err := time.Parse("2006-01-02 15:04 -0700", c.from)
			require.NoError(t, err)
			var got []string
			for range strings.Split(c.want, ", ") {
				if at = s.Next(at); at.IsZero() {
					got = append(got, "never")
					break
				}
				got = append(got, at.In(s.loc).Format("02 15:04 MST"))
			}
			require.Equal(t, c.want, strings.Join(got, ", "))
		})
	}
}

// lines are of public crontabs, and of those whose meaning differs from cron to cron.
var lines = []string{
	"*/15 * * * *", "*/45 * * * *", "0 * * * *", "17 * * * *", "25 6 * * *", "47 6 * * 7", "52 6 1 * *",
	"0 0 * * *", "30 2 * * *", "0,30 2 * * *", "0 1,2,3 * * *", "0 */2 * * *", "5 1-4 * * *", "*/20 2 * * *", "30 1 * * 0", "0 9-17 * * 1-5",
	"0 0 1 * *", "0 0 31 * *", "0 0 29 2 *", "0 12 1-7 * MON", "0 12 */2 * MON", "0 12 1 * */2", "0 3 * * 5-7", "0 0 1 1 *", "30 4 1,15 * 5",
	"10,40 0-3 * * *", "59 23 * * *", "@hourly", "@daily", "@weekly", "@monthly",
}

var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/St_Johns", "Africa/Cairo", "Asia/Beirut",
	"America/Santiago", "Pacific/Chatham", "Antarctica/Troll", "Europe/London", "America/Sao_Paulo", "Asia/Kolkata", "America/Havana", "Pacific/Auckland",
}

// A year of fire times is that of cronie's loop, minute by minute, in sixteen zones. -short has the weeks around a change of
// the clock, in four.
func TestNextAsCroniesLoop(t *testing.T) {
	t.Parallel()
	of, months := zones, 12
	if testing.Short() {
		of, months = of[:4], 2
	}
	for _, name := range of {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := zone(t, name)
			from := time.Date(2026, 3, 1, 12, 0, 0, 0, loc)
			until := from.AddDate(0, months, 0)
			daemons := make([]daemon, len(lines))
			for i, text := range lines {
				daemons[i].Schedule = parsed(t, text, loc)
			}
			loop(daemons, from, until)
			for _, d := range daemons {
				at := from
				for _, want := range d.fires {
					if at = d.Next(at); !at.Equal(want) {
						require.Equal(t, want.String(), at.String(), "%s", d)
					}
				}
				require.True(t, d.Next(at).IsZero() || !d.Next(at).Before(until), "%s", d)
			}
		})
	}
}

// daemon is a schedule with the instants at which the loop has fired it.
type daemon struct {
	Schedule
	fires []time.Time
}

// fire notes an instant, once.
func (d *daemon) fire(at time.Time) {
	if n := len(d.fires); n == 0 || !d.fires[n-1].Equal(at) {
		d.fires = append(d.fires, at)
	}
}

// loop runs the loop of cronie's daemon (cronie 1.7.2, src/cron.c, main) from one instant to another: "virtual time" is
// the clock on the wall, which the loop moves on as the clock jumps.
func loop(all []daemon, from, until time.Time) {
	offset := 0
	minute := func(at time.Time) int64 {
		if at.Unix()%900 == 0 { // no clock is changed at another time
			_, offset = at.Zone()
		}
		return (at.Unix() + int64(offset)) / 60
	}
	var of [60][]*daemon // by minute
	for i := range all {
		for m := range of {
			if all[i].minute.has(m) {
				of[m] = append(of[m], &all[i])
			}
		}
	}
	find := func(virtual int64, at time.Time, wild, fixed bool) {
		shown := time.Unix(virtual*60, 0).UTC()
		for _, d := range of[shown.Minute()] {
			if d.hour.has(shown.Hour()) && d.month.has(int(shown.Month())) && (d.wild && wild || !d.wild && fixed) && d.fits(shown) {
				d.fire(at)
			}
		}
	}
	virtual := minute(from)
	for at := from.Add(time.Minute); at.Before(until); at = at.Add(time.Minute) {
		running := minute(at)
		switch ahead := running - virtual; {
		case ahead > 1 && ahead < 3*60: // the clock has been set forward
			find(running, at, true, false)
			for virtual < running {
				virtual++
				find(virtual, at, false, true)
			}
		case ahead <= 0 && ahead > -3*60: // it has been set back: virtual time waits for it
			find(running, at, true, false)
		default:
			virtual = running
			find(virtual, at, true, true)
		}
	}
}

// A search for a day that never comes ends, and the zero value never fires.
func TestNever(t *testing.T) {
	t.Parallel()
	never := parsed(t, "0 0 29 2 *", time.UTC)
	never.day = 1 << 30
	require.True(t, never.Next(time.Now()).IsZero(), "the search ends")
	require.True(t, Schedule{}.Next(time.Now()).IsZero())
	require.Equal(t, "never", Schedule{}.String())
	require.Equal(t, "CRON_TZ=UTC @daily", parsed(t, "@daily", time.UTC).String())
}

// What is refused, and what its error says.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":                "has 0 fields",
		"* * * *":         "has 4 fields",
		"0 0 * * * *":     "has 6 fields",
		"*/90 * * * *":    `minute "*/90": the step 90 is longer than the range 0-59, so that "*/90" is 0 alone: write that`,
		"5/15 * * * *":    "a step follows * or a range, as in 5-59/15",
		"60 * * * *":      "60 is not between 0 and 59",
		"0 24 * * *":      "24 is not between 0 and 23",
		"0 0 0 * *":       "0 is not between 1 and 31",
		"0 0 * 13 *":      "13 is not between 1 and 12",
		"0 0 * * 8":       "8 is not between 0 and 7",
		"0 22-2 * * *":    `ends before it begins; write two: 22-23,0-2`,
		"0 0 * * fri-mon": `write two: 5-7,0-1`,
		"*/0 * * * *":     `the step "0" is not a number above 0`,
		"1,,2 * * * *":    `"" is no number`,
		"+5 * * * *":      `"+5" is no number`,
		"0~59 * * * *":    "is a random time",
		"0 0 L * *":       `"L" is of another scheduler`,
		"0 0 * * 5#2":     `"5#2" is of another scheduler`,
		"0 0 ? * *":       `"?" is of another scheduler`,
		"0 0 * * tuesday": `"tuesday" is no number`,
		"0 0 30 2 *":      `"0 0 30 2 *" never fires: no month that it names has such a day`,
		"0 0 31 4,6 *":    "never fires",
		"@reboot":         "no time on which a fleet agrees",
		"@every":          "give the job a period",
		"@fortnightly":    "is none of @hourly",

		"CRON_TZ=Europe/Berlin 0 9 * * *": "CRON_TZ=Europe/Berlin is a zone, which is not a part of the text",
		"TZ=UTC @daily":                   "TZ=UTC is a zone",
	} {
		_, err := Parse(spec, time.UTC)
		require.ErrorContains(t, err, want, spec)
		require.Panics(t, func() { MustParse(spec, time.UTC) }, spec)
	}
	_, err := Parse("@daily", nil)
	require.ErrorContains(t, err, "a zone is needed, such as time.UTC")
}
