package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/schedlock"
)

// berlin returns a time of day in Berlin.
func Berlin(t testing.TB, text string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at, err := time.ParseInLocation("2006-01-02 15:04:05", text, loc)
	require.NoError(t, err)
	return at
}

func InBerlin(t testing.TB, spec string) crontab.Schedule {
	t.Helper()
	s, err := crontab.Parse(spec, Berlin(t, "2026-01-01 00:00:00").Location())
	require.NoError(t, err)
	return s
}

// What a call does with the latest record, by its schedule.
func TestOccasion(t *testing.T) {
	t.Parallel()
	const start, follow = "start", "follow"
	for name, c := range map[string]struct {
		every     time.Duration
		cron      string
		last, now string
		by        string
		want      string
	}{
		"the first call":                        {24 * time.Hour, "", "", "2026-03-01 01:30:00", "", start},
		"the next day":                          {24 * time.Hour, "", "2026-03-01 01:30:00", "2026-03-02 01:30:00", "", start},
		"the night of 23 hours":                 {24 * time.Hour, "", "2026-03-28 01:30:04", "2026-03-29 01:30:00", "", start},
		"after the night of 23 hours":           {24 * time.Hour, "", "2026-03-28 03:30:00", "2026-03-29 03:30:00", "", start},
		"2h, the hour that is missing":          {2 * time.Hour, "", "2027-03-28 01:30:04", "2027-03-28 03:30:00", "", start},
		"3h, the hour that is missing":          {3 * time.Hour, "", "2027-03-28 01:30:04", "2027-03-28 04:30:00", "", start},
		"4h, the hour that is missing":          {4 * time.Hour, "", "2027-03-28 00:30:04", "2027-03-28 04:30:00", "", start},
		"5h, the hour that is missing":          {5 * time.Hour, "", "2027-03-28 00:30:04", "2027-03-28 05:30:00", "", start},
		"6h, the hour that is missing":          {6 * time.Hour, "", "2027-03-28 00:30:04", "2027-03-28 06:30:00", "", start},
		"2h, a machine that calls later":        {2 * time.Hour, "", "2027-03-01 01:30:00", "2027-03-01 02:19:00", "", follow},
		"the night of 25 hours":                 {24 * time.Hour, "", "2026-10-24 03:30:00", "2026-10-25 03:30:00", "", start},
		"the other machine":                     {24 * time.Hour, "", "2026-03-01 01:30:00", "2026-03-01 01:30:05", "", follow},
		"a machine whose clock is slow":         {24 * time.Hour, "", "2026-03-01 01:30:30", "2026-03-01 01:30:00", "", follow},
		"a machine that calls an hour later":    {24 * time.Hour, "", "2026-03-01 01:30:00", "2026-03-01 02:30:00", "", follow},
		"too old and too young":                 {24 * time.Hour, "", "2026-03-01 01:30:00", "2026-03-01 23:30:00", "", "the latest run, of tick 2026-03-01T00:30:00Z, is 22h0m0s old"},
		"a quarter less at most":                {time.Hour, "", "2026-03-01 01:00:00", "2026-03-01 01:44:00", "", "is 44m0s old"},
		"a quarter less":                        {time.Hour, "", "2026-03-01 01:00:00", "2026-03-01 01:45:00", "", start},
		"this machine again, soon":              {24 * time.Hour, "", "2026-03-01 01:30:00", "2026-03-01 01:30:40", "here", follow},
		"this machine again":                    {45 * time.Minute, "", "2026-03-01 01:45:00", "2026-03-01 02:00:00", "here", "calls are more frequent than --every"},
		"a machine whose name begins so":        {45 * time.Minute, "", "2026-03-01 01:45:00", "2026-03-01 02:00:00", "here2", follow},
		"this machine, the next time":           {45 * time.Minute, "", "2026-03-01 01:00:00", "2026-03-01 01:45:00", "here", start},
		"cron: the first call":                  {0, "30 2 * * *", "", "2026-03-01 02:30:01", "", start},
		"cron: the other machine":               {0, "30 2 * * *", "2026-03-01 02:30:00", "2026-03-01 02:30:20", "", follow},
		"cron: a clock that is a little slow":   {0, "30 2 * * *", "2026-02-28 02:30:00", "2026-03-01 02:29:59", "", start},
		"cron: a slow clock of the other":       {0, "30 2 * * *", "2026-03-01 02:30:00", "2026-03-01 02:29:45", "", follow},
		"cron: the night after one by hand":     {0, "30 2 * * *", "2026-03-01 10:12:13", "2026-03-02 02:30:00", "", start},
		"cron: by hand in place of a time":      {0, "30 2 * * *", "2026-03-01 02:30:10", "2026-03-01 02:31:20", "", follow},
		"cron: a fast clock, the next time":     {0, "* * * * *", "2026-03-01 02:31:00", "2026-03-01 02:30:20", "", follow},
		"cron: the next night":                  {0, "30 2 * * *", "2026-03-01 02:30:00", "2026-03-02 02:30:00", "", start},
		"cron: 02:30 in spring, called at 3":    {0, "30 2 * * *", "2026-03-28 02:30:00", "2026-03-29 03:00:00", "", start},
		"cron: a cron without 02:30 in spring":  {0, "30 2 * * *", "2026-03-29 03:00:00", "2026-03-30 02:30:00", "", start},
		"cron: 02:30 in autumn, the second one": {0, "30 2 * * *", "2026-10-25 02:30:00", "2026-10-25 03:30:00", "here", "this machine has run tick"},
		"cron: another zone than the machine's": {0, "30 2 * * *", "2026-03-01 02:30:00", "2026-03-01 20:30:00", "", "is 18h0m0s old"},
		"cron: */45, the quarter":               {0, "*/45 * * * *", "2026-03-01 01:45:00", "2026-03-01 02:00:00", "", start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := occasion{now: Berlin(t, c.now), every: c.every, host: "here"}
			if c.cron != "" {
				o.cron = InBerlin(t, c.cron)
			}
			var last *schedlock.Record
			if c.last != "" {
				last = &schedlock.Record{Tick: Berlin(t, c.last), Start: Berlin(t, c.last), Owner: c.by + ", process 7"}
			}
			d := o.decide(last)
			require.Equal(t, strings.HasPrefix(name, "cron: by hand in place"), !d.missed.IsZero())
			got := d.reason
			switch {
			case d.start:
				got = start
				require.False(t, d.tick.After(o.now.Add(clocksApart)), "no tick is refused for being in the future")
			case d.follow:
				got = follow
				require.True(t, last.Tick.Equal(d.tick))
			}
			require.Contains(t, got, c.want)
		})
	}
}

// What has become of the run decides before where and when it was: a run that was not carried out is that of each call, and one
// that has failed is repeated by none.
func TestOccasionByState(t *testing.T) {
	t.Parallel()
	const follow, failed, tooOld = "follow", "by here, process 7 has failed, and is not repeated: exit code 3", "too old to be the one of this call"
	const soon, later, late = 10 * time.Second, 5 * time.Minute, 20 * time.Hour
	for name, c := range map[string]struct {
		state   schedlock.State
		after   time.Duration
		standby bool
		want    string
		active  bool
	}{
		"lost, soon":                  {schedlock.RunLost, soon, false, follow, false},
		"lost, later":                 {schedlock.RunLost, later, false, follow, false},
		"lost, late":                  {schedlock.RunLost, late, false, follow, false},
		"unlocked, later":             {schedlock.RunUnlocked, later, false, follow, false},
		"unreadable, later":           {schedlock.RunUnreadable, later, false, follow, false},
		"active, soon":                {schedlock.RunActive, soon, false, follow, false},
		"active, later":               {schedlock.RunActive, later, false, "this machine runs tick 2026-03-01T01:30:00Z, for 5m0s by now", true},
		"active, late":                {schedlock.RunActive, late, false, tooOld, true},
		"failed, soon":                {schedlock.RunFailed, soon, false, failed, false},
		"failed, later":               {schedlock.RunFailed, later, false, failed, false},
		"failed, late":                {schedlock.RunFailed, late, false, tooOld, false},
		"failed, and was waited for":  {schedlock.RunFailed, soon, true, follow, false},
		"failed beside a second call": {schedlock.RunFailed, later, true, "this machine has run tick", false},
		"done, soon":                  {schedlock.RunDone, soon, false, follow, false},
		"done, later":                 {schedlock.RunDone, later, false, "this machine has run tick", false},
	} {
		for _, cron := range []bool{true, false} {
			tick := Berlin(t, "2026-03-01 02:30:00")
			o := occasion{now: tick.Add(c.after), host: "here", standby: c.standby}
			if cron {
				o.cron = InBerlin(t, "30 2 * * *")
			} else {
				o.every = 24 * time.Hour
			}
			d := o.decide(&schedlock.Record{Tick: tick, Start: tick, Owner: "here, process 7", State: c.state, Error: "exit code 3"})
			require.False(t, d.start, name)
			require.Equal(t, c.want == follow, d.follow, name)
			require.Equal(t, c.active, d.active, name)
			if !d.follow {
				require.Contains(t, d.reason, c.want, name)
			}
			require.Equal(t, cron && c.want == failed, strings.Contains(d.reason, "; --now repeats it"), name)
		}
	}
}

// In the night in which clocks go forward each call runs its command: from 2 hours to a day apart, at several minutes, some
// of them a minute late.
func TestOccasionInSpring(t *testing.T) {
	t.Parallel()
	for hours := 2; hours <= 24; hours++ {
		for _, minute := range []int{0, 1, 30, 59} {
			for first := range hours {
				var last *schedlock.Record
				for hour := first; hour < 48; hour += hours {
					late := time.Duration(len(fmt.Sprint(hour))%2) * clocksApart
					now := time.Date(2027, 3, 27, hour, minute, 0, 0, Berlin(t, "2027-01-01 00:00:00").Location()).Add(late)
					d := occasion{now: now, every: time.Duration(hours) * time.Hour, host: "here"}.decide(last)
					require.True(t, d.start, "every %d h, %s: %s", hours, now, d.reason)
					last = &schedlock.Record{Tick: d.tick, Start: now, Owner: "here, process 1"}
				}
			}
		}
	}
}

// Each night of a year two machines whose clocks are apart call at a time of day in Berlin: the command is run once a night,
// also in those of 23 and of 25 hours.
func TestOccasionEachNightOfAYear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every time.Duration
		cron  string
		at    time.Duration // of the day, by the clock on the wall
	}{{24 * time.Hour, "", 90 * time.Minute}, {24 * time.Hour, "", 3*time.Hour + 30*time.Minute}, {0, "30 1 * * *", 90 * time.Minute}, {0, "30 3 * * *", 3*time.Hour + 30*time.Minute}} {
		for _, apart := range []time.Duration{0, time.Second, -5 * time.Second, 59 * time.Second, -59 * time.Second} {
			t.Run(fmt.Sprint(c.every, c.cron, c.at, apart), func(t *testing.T) {
				t.Parallel()
				o := occasion{every: c.every}
				if c.cron != "" {
					o.cron = InBerlin(t, c.cron)
				}
				var last *schedlock.Record
				day := Berlin(t, "2026-01-01 00:00:00")
				for n := range 365 {
					h, m := int(c.at.Hours()), int(c.at.Minutes())%60
					call := time.Date(2026, 1, 1+n, h, m, 0, 0, day.Location())
					started := 0
					for _, now := range []time.Time{call, call.Add(apart)} {
						o.now = now
						if d := o.decide(last); d.start {
							started++
							last = &schedlock.Record{Tick: d.tick, Start: now, Owner: "one of them"}
						} else {
							require.True(t, d.follow, "%v: %s", now, d.reason)
						}
					}
					require.Equal(t, 1, started, call)
				}
			})
		}
	}
}

// `*/45` in a crontab is called at 0 and 45 past each hour: with --cron all are run, with --every 45m the second machine's
// distance is kept, and this machine says why.
func TestOccasionOfUnequalIntervals(t *testing.T) {
	t.Parallel()
	cron, every := 0, 0
	for _, o := range []*occasion{{cron: InBerlin(t, "*/45 * * * *"), host: "here"}, {every: 45 * time.Minute, host: "here"}} {
		var last *schedlock.Record
		for at := Berlin(t, "2026-03-01 00:00:00"); at.Before(Berlin(t, "2026-03-02 00:00:00")); {
			o.now = at
			switch d := o.decide(last); {
			case d.start && o.every == 0:
				cron++
				last = &schedlock.Record{Tick: d.tick, Start: at, Owner: "here, process 1"}
			case d.start:
				every++
				last = &schedlock.Record{Tick: d.tick, Start: at, Owner: "here, process 1"}
			default:
				require.NotEmpty(t, d.reason, "no call is dropped with exit 0")
			}
			at = InBerlin(t, "*/45 * * * *").Next(at)
		}
	}
	require.Equal(t, 48, cron)
	require.Equal(t, 25, every, "at 00:00, and then at 45 past each hour")
}

// K25: with --every the next call comes no later than the plan says, also in the night of 25 hours; a call that is missing is
// known before the next one.
func TestOccasionIsPlanned(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{10 * time.Second, time.Hour, 2 * time.Hour, 4 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		schedule, late := occasion{every: every}.schedule()
		at := Berlin(t, "2026-10-24 03:30:00")
		next := schedule.Next(at)
		require.Equal(t, at.Add(every), next)
		require.Less(t, late, every)
		if every >= hourly {
			require.Greater(t, late, time.Hour, every)
		}
	}
	line := InBerlin(t, "30 1 * * *")
	schedule, late := occasion{cron: line}.schedule()
	require.Zero(t, late)
	require.Equal(t, Berlin(t, "2026-10-25 01:30:00").UTC(), schedule.Next(Berlin(t, "2026-10-24 03:30:00")).UTC())
	require.Equal(t, "30 1 * * *", schedule.(schedlock.Crontab).Text)
}
