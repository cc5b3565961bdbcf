package schedlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grid is a schedule of fixed fire times: every period since the epoch.
type grid time.Duration

func (g grid) Next(t time.Time) time.Time { return t.Truncate(time.Duration(g)).Add(time.Duration(g)) }

// delaySchedule is a schedule like @every: it counts from when it is asked.
type delaySchedule time.Duration

func (d delaySchedule) Next(t time.Time) time.Time { return t.Add(time.Duration(d)) }

// daily fires at nine, in the zone of the time it is asked with, as robfig's schedules do.
type daily struct{}

func (daily) Next(t time.Time) time.Time {
	n := time.Date(t.Year(), t.Month(), t.Day(), 9, 0, 0, 0, t.Location())
	if !n.After(t) {
		n = n.AddDate(0, 0, 1)
	}
	return n
}

type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

// J10: timers are early and late. The tick is the one for which the timer was set.
func TestTimersEarlyAndLate(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	for _, off := range []time.Duration{-49 * time.Millisecond, -5 * time.Millisecond, -time.Nanosecond, 0, time.Nanosecond,
		5 * time.Millisecond, 500 * time.Millisecond, 900 * time.Millisecond} {
		for _, order := range []string{"run, then next", "next, then run"} { // robfig starts a goroutine for Run, and then asks
			t.Run(fmt.Sprint(off, " ", order), func(t *testing.T) {
				t.Parallel()
				tt := timetable{schedule: grid(time.Second)}
				require.Equal(t, at(1), first(tt.next(at(0))))
				for n := 1; n <= 5; n++ {
					now := at(n).Add(off)
					woken := now
					if woken.Before(at(n)) {
						woken = at(n) // it does not ask before the time has come
					}
					if order == "next, then run" {
						tt.next(woken)
					}
					tick, in, came := tt.due(now)
					require.True(t, came)
					require.LessOrEqual(t, in, early)
					require.Equal(t, at(n), tick)
					_, ok := tt.advance(tick)
					require.True(t, ok)
					if order == "run, then next" {
						tt.next(woken)
					}
				}
			})
		}
	}
}

// A clock that was ahead is set back. What lies beyond the horizon is forgotten, and calls that
// are on standby for it end.
func TestTimetableSetBack(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tt := timetable{schedule: grid(time.Second)}
	passed, ok := tt.advance(start.Add(time.Hour))
	require.True(t, ok)
	tt.setBack(start.Add(time.Hour))
	require.Equal(t, start.Add(time.Hour), dueOf(&tt, start))
	select {
	case <-passed:
		t.Fatal("it is within the horizon")
	default:
	}
	tt.setBack(start.Add(time.Hour - time.Millisecond))
	<-passed
	require.Equal(t, start, dueOf(&tt, start))
	_, ok = tt.advance(start)
	require.True(t, ok)
}

// What cron libraries do between one Run and the next, as a table: times at which they ask
// for the next fire time and at which they call, and the tick that each call is for. The
// period is 10 s; "n" asks, "r" runs. What is asked for changes nothing.
func TestTimetable(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type step struct {
		do   string
		at   float64
		tick float64
	}
	for name, steps := range map[string][]step{
		"called twice for one tick":                   {{"n", 0, 10}, {"r", 10, 10}, {"r", 10, 10}, {"n", 10, 20}, {"r", 20, 20}},
		"called by hand between":                      {{"n", 0, 10}, {"r", 10, 10}, {"n", 10, 20}, {"r", 14, 10}, {"r", 20, 20}},
		"called by hand before the first":             {{"n", 3, 10}, {"r", 4, 0}, {"r", 10, 10}},
		"never asked":                                 {{"r", 13, 10}, {"r", 20, 20}, {"r", 29.99, 30}},
		"stopped, and started again":                  {{"n", 0, 10}, {"n", 71, 80}, {"r", 80, 80}, {"n", 80, 90}, {"r", 90, 90}},
		"left out by SkipIfStillRunning":              {{"n", 0, 10}, {"r", 10, 10}, {"n", 10, 20}, {"n", 20, 30}, {"n", 30, 40}, {"r", 40, 40}},
		"delayed by DelayIfStillRunning":              {{"n", 0, 10}, {"r", 10, 10}, {"n", 10, 20}, {"n", 20, 30}, {"n", 30, 40}, {"r", 35, 30}, {"r", 36, 30}, {"r", 40, 40}},
		"suspended, and asked on from what was due":   {{"n", 0, 10}, {"r", 65, 60}, {"n", 65, 70}, {"r", 70, 70}},
		"suspended, and asked again for each":         {{"n", 0, 10}, {"n", 10, 20}, {"n", 20, 30}, {"r", 35, 30}, {"n", 30, 40}, {"r", 40, 40}},
		"asked ahead, for a page that shows the next": {{"n", 0, 10}, {"n", 10, 20}, {"n", 20, 30}, {"r", 10, 10}, {"r", 20, 20}, {"r", 30, 30}},
		"asked for times long ago":                    {{"n", 0, 10}, {"n", -75, -70}, {"r", 5, 0}, {"r", 10, 10}},
		"the clock is set back":                       {{"n", 0, 10}, {"r", 10, 10}, {"n", 10, 20}, {"r", 8, 10}, {"r", 20, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
			tt := timetable{schedule: grid(10 * time.Second)}
			for i, s := range steps {
				if s.do == "n" {
					require.Equal(t, at(s.tick), first(tt.next(at(s.at))), i)
					continue
				}
				tick := dueOf(&tt, at(s.at))
				require.Equal(t, at(s.tick), tick, i)
				_, _ = tt.advance(tick)
			}
		})
	}
}

func dueOf(tt *timetable, now time.Time) time.Time {
	tick, _, _ := tt.due(now)
	return tick
}

func first(next time.Time, _ *time.Location) time.Time { return next }

// A later tick ends the earlier ones, and no earlier one comes after it.
func TestTimetableComes(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tt := timetable{schedule: grid(time.Second)}
	first, ok := tt.advance(start)
	require.True(t, ok)
	again, ok := tt.advance(start)
	require.True(t, ok)
	require.Equal(t, first, again)
	select {
	case <-first:
		require.Fail(t, "it has not passed")
	default:
	}
	_, ok = tt.advance(start.Add(time.Second))
	require.True(t, ok)
	<-first
	_, ok = tt.advance(start)
	require.False(t, ok)
}

// J24: a schedule without a zone of its own is asked in the zone of the cron library, also
// for times that were missed, which come from etcd in UTC.
func TestTimetableKeepsTheZone(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("Tokyo", 9*3600)
	tt := timetable{schedule: daily{}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, tokyo)
	tt.next(now)
	tt.next(now.UTC()) // another caller
	missed, ok := tt.latest(now.AddDate(0, 0, -2).UTC(), now.UTC())
	require.True(t, ok)
	require.True(t, missed.Equal(time.Date(2026, 3, 1, 9, 0, 0, 0, tokyo)), missed)
}

func TestTimetableLatest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	for _, x := range []struct {
		schedule Schedule
		last     time.Time
		want     time.Time
	}{
		{grid(time.Second), time.Time{}, now},
		{grid(time.Minute), time.Time{}, now.Add(-30 * time.Second)},
		{grid(time.Minute), now.Add(-30 * time.Second), time.Time{}},
		{grid(time.Minute), now.Add(-31 * time.Second), now.Add(-30 * time.Second)},
		{daily{}, time.Time{}, now.Truncate(24 * time.Hour).Add(9 * time.Hour)},
		{daily{}, now.AddDate(-1, 0, 0), now.Truncate(24 * time.Hour).Add(9 * time.Hour)},
		{grid(400 * 24 * time.Hour), time.Time{}, now.Truncate(400 * 24 * time.Hour)},
		{never{}, time.Time{}, time.Time{}},
	} {
		tt := timetable{schedule: x.schedule}
		got, ok := tt.latest(x.last, now)
		require.Equal(t, !x.want.IsZero(), ok)
		require.True(t, got.Equal(x.want), "%T %v: %v, want %v", x.schedule, x.schedule, got, x.want)
	}
}

// The first zone counts for all, and a caller whose own has other fire times is found.
func TestTimetableInTwoZones(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("Tokyo", 9*3600)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, tokyo)
	nine := time.Date(2026, 3, 2, 9, 0, 0, 0, tokyo)
	tt := timetable{schedule: daily{}}
	for range 2 {
		next, zone := tt.next(now)
		require.Equal(t, nine, next)
		require.Nil(t, zone)
		next, zone = tt.next(now.UTC())
		require.Equal(t, nine.UTC(), next)
		require.Equal(t, tokyo, zone)
	}
	tt = timetable{schedule: grid(time.Hour)} // which are the same in both
	tt.next(now)
	next, zone := tt.next(now.UTC())
	require.Equal(t, now.Add(time.Hour).UTC(), next)
	require.Nil(t, zone)
	tt = timetable{schedule: never{}}
	tt.next(now)
	next, zone = tt.next(now.UTC())
	require.True(t, next.IsZero())
	require.Nil(t, zone)
}

// The fire times of Periods are the ticks of Every.
func TestPeriods(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := Periods(7 * time.Second)
	tick := s.Next(start)
	for range 3 {
		require.Equal(t, tick.Add(7*time.Second), s.Next(tick))
		require.Equal(t, tick.Add(7*time.Second), s.Next(tick.Add(6999*time.Millisecond)))
		require.Equal(t, tick, request{settings: settings{every: 7 * time.Second}, periodic: true}.tickAt(tick))
		tick = s.Next(tick)
	}
	berlin := time.FixedZone("Berlin", 2*3600)
	require.Equal(t, tick.In(berlin), s.Next(tick.Add(-time.Second).In(berlin)), "in the location of its argument")
	require.Zero(t, Periods(0).Next(start))
	tt := timetable{schedule: Periods(100 * time.Millisecond)}
	require.Equal(t, start, dueOf(&tt, start.Add(89*time.Millisecond)))
	require.Equal(t, start.Add(100*time.Millisecond), dueOf(&tt, start.Add(90*time.Millisecond)), "a timer may be early by a tenth")
}

// J10: a call just before a period is for that period, and the schedule says which times
// belong together, not the phase of a process (gocron #841).
func TestEveryEarlyAndLate(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := request{settings: settings{every: time.Second}, periodic: true}
	for off, want := range map[time.Duration]time.Duration{-51 * time.Millisecond: -time.Second, -50 * time.Millisecond: 0, -5 * time.Millisecond: 0,
		0: 0, 5 * time.Millisecond: 0, 900 * time.Millisecond: 0, 949 * time.Millisecond: 0, 950 * time.Millisecond: time.Second} {
		require.Equal(t, start.Add(want), s.tickAt(start.Add(off)), off)
	}
	s.tick = start.Add(-time.Millisecond)
	require.Equal(t, start.Add(-time.Second), s.tickAt(start), "a tick that was given is taken as it is")
	s = request{settings: settings{every: 10 * time.Millisecond}, periodic: true}
	require.Equal(t, start, s.tickAt(start.Add(8*time.Millisecond)))
	require.Equal(t, start.Add(10*time.Millisecond), s.tickAt(start.Add(9*time.Millisecond)))
}

// A crontab whose text begins with its zone, as robfig/cron and gocron take it, is that of a process that has the zone apart from
// the text, as of schedlock/crontab. They refused each other's job (A480 in internal/proof/tested-failures.md).
func TestTextThatBeginsWithItsZone(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	nine := at{zone: berlin, times: hours(9)}
	const text, want = "0 9 * * *", `"0 9 * * *" in Europe/Berlin`
	gocron := &timetable{schedule: nine}
	gocron.in("CRON_TZ=Europe/Berlin "+text, berlin)
	for name, tt := range map[string]*timetable{
		"apart":             {schedule: Crontab{Text: text, Zone: berlin, Schedule: nine}},
		"CRON_TZ":           {schedule: Crontab{Text: "CRON_TZ=Europe/Berlin  " + text, Schedule: nine}},
		"TZ":                {schedule: Crontab{Text: " TZ=Europe/Berlin " + text, Zone: berlin, Schedule: nine}},
		"gocron's, CRON_TZ": gocron,
	} {
		tt.next(surveyed)
		f, ok := parseFires(tt.print())
		require.True(t, ok, name)
		require.Equal(t, want, f.crontab, name)
		require.Equal(t, text, tt.plan(surveyed).Text, name)
	}
	other := &timetable{schedule: Crontab{Text: "CRON_TZ=Europe/Paris " + text, Zone: berlin, Schedule: nine}}
	other.next(surveyed)
	f, _ := parseFires(other.print())
	require.Equal(t, `"CRON_TZ=Europe/Paris 0 9 * * *" in Europe/Berlin`, f.crontab, "another zone stays")
}
