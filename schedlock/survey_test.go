package schedlock

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// at fires at some times of day, on some days, in a zone.
type at struct {
	zone  *time.Location
	days  func(time.Time) bool // or nil: each day
	times []time.Duration
}

func (a at) Next(t time.Time) time.Time {
	here := t.In(a.zone)
	for day := range 900 {
		noon := time.Date(here.Year(), here.Month(), here.Day()+day, 12, 0, 0, 0, a.zone)
		if a.days != nil && !a.days(noon) {
			continue
		}
		for _, of := range a.times {
			n := time.Date(noon.Year(), noon.Month(), noon.Day(), 0, 0, int(of/time.Second), 0, a.zone)
			if n.After(t) {
				return n.In(t.Location())
			}
		}
	}
	return time.Time{}
}

func hours(of ...int) (out []time.Duration) {
	for _, h := range of {
		out = append(out, time.Duration(h)*time.Hour)
	}
	return out
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

// wild answers another time at each call.
type wild struct{ calls *int }

func (w wild) Next(t time.Time) time.Time {
	*w.calls++
	return t.Add(time.Hour + time.Duration(*w.calls*1237)*time.Millisecond)
}

// K1, K4, K5: whether a Job is accepted depends on its schedule and its options alone: each row has the same
// answer at each time of the year.
func TestJobIsAcceptedAtAnyTimeOfTheYear(t *testing.T) {
	t.Parallel()
	berlin, lordHowe := zone(t, "Europe/Berlin"), zone(t, "Australia/Lord_Howe")
	weekdays := func(t time.Time) bool { return t.Weekday() >= time.Monday && t.Weekday() <= time.Friday }
	firsts := func(t time.Time) bool { return t.Day() == 1 }
	const day = 24 * time.Hour
	for name, x := range map[string]struct {
		schedule Schedule
		atLeast  time.Duration
		refused  string
	}{
		"a daily job":                              {at{berlin, nil, hours(9)}, 0, ""},
		"less than the shortest day":               {at{berlin, nil, hours(9)}, 22 * time.Hour, ""},
		"the day on which the clocks go forward":   {at{berlin, nil, hours(9)}, 23 * time.Hour, "23h0m0s, after 2024-03-30T08:00:00Z"},
		"between that day and the others":          {at{berlin, nil, hours(9)}, 23*time.Hour + 30*time.Minute, "23h0m0s, after 2024-03-30"},
		"a day":                                    {at{berlin, nil, hours(9)}, day, "24h0m0s"},
		"a day and a half, to skip":                {at{berlin, nil, hours(9)}, 36 * time.Hour, ""},
		"without changes of the clocks":            {at{time.UTC, nil, hours(9)}, 23 * time.Hour, ""},
		"twice a day, the short time":              {at{berlin, nil, hours(9, 17)}, 8 * time.Hour, "8h0m0s"},
		"twice a day, the long time":               {at{berlin, nil, hours(9, 17)}, 16 * time.Hour, "16h0m0s"},
		"twice a day, less":                        {at{berlin, nil, hours(9, 17)}, 7 * time.Hour, ""},
		"twice a day, to skip":                     {at{berlin, nil, hours(9, 17)}, 9 * time.Hour, ""},
		"on weekdays, a day":                       {at{berlin, weekdays, hours(9)}, day, "24h0m0s"},
		"on weekdays, 23 hours":                    {at{berlin, weekdays, hours(9)}, 23 * time.Hour, ""},
		"on weekdays, with the weekend":            {at{berlin, weekdays, hours(9)}, 3 * day, "72h0m0s"},
		"monthly, 28 days":                         {at{time.UTC, firsts, hours(0)}, 28 * day, "672h0m0s, after 2025-02-01"},
		"monthly, 28 days and a half":              {at{time.UTC, firsts, hours(0)}, 28*day + 12*time.Hour, "672h0m0s, after 2025-02-01"},
		"monthly, 27 days":                         {at{time.UTC, firsts, hours(0)}, 27 * day, ""},
		"each minute":                              {grid(time.Minute), time.Minute, "1m0s"},
		"each minute, to skip":                     {grid(time.Minute), 10 * time.Minute, ""},
		"each second":                              {grid(time.Second), time.Second, "1s"},
		"a zone that moves by half an hour":        {at{lordHowe, nil, hours(9)}, 0, ""},
		"a zone that moves by half an hour, 23:30": {at{lordHowe, nil, hours(9)}, 23*time.Hour + 30*time.Minute, "23h30m0s"},
		"no fire time":                             {never{}, 0, "the schedule never fires"},
		"counted from the call":                    {delaySchedule(time.Hour), 0, "counts from the time"},
		"counted from the call, short":             {delaySchedule(time.Second), 0, "counts from the time"},
		"by chance":                                {wild{new(int)}, 0, "counts from the time"},
		"once":                                     {oneTime(time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC)), time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for now := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC); now.Year() < 2027; now = now.Add(37*day + 5*time.Hour) {
				tt := timetable{schedule: x.schedule}
				err := tt.check(settings{atLeast: x.atLeast}, now)
				if x.refused == "" {
					require.NoError(t, err, now)
					continue
				}
				require.ErrorIs(t, err, ErrInvalid, now)
				require.ErrorContains(t, err, x.refused)
			}
		})
	}
}

// oneTime fires at one time.
type oneTime time.Time

func (o oneTime) Next(t time.Time) time.Time {
	if t.Before(time.Time(o)) {
		return time.Time(o)
	}
	return time.Time{}
}

// counting counts the calls of Next.
type counting struct {
	Schedule
	calls *int
}

func (c counting) Next(t time.Time) time.Time { *c.calls++; return c.Schedule.Next(t) }

// What a Job costs when it is made: the fire times of a year are not walked.
func TestJobIsMadeWithFewFireTimes(t *testing.T) {
	t.Parallel()
	for atLeast, most := range map[time.Duration]int{0: 8, 500 * time.Millisecond: 3000} {
		for _, every := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			n := 0
			tt := timetable{schedule: counting{grid(every), &n}}
			require.NoError(t, tt.check(settings{atLeast: atLeast}, time.Now().In(zone(t, "Europe/Berlin"))))
			require.LessOrEqual(t, n, most, every)
		}
	}
}

// backward answers with its argument, or an earlier time, in the hour before a change of the clocks, as
// cronexpr does.
type backward struct {
	Schedule
	from, to time.Time
	by       time.Duration
}

func (b backward) Next(t time.Time) time.Time {
	if !t.Before(b.from) && t.Before(b.to) {
		return t.Add(-b.by)
	}
	return b.Schedule.Next(t)
}

// K9: a schedule whose Next does not go forward is asked again for later times, and is reported; one that
// never goes forward has no fire time.
func TestScheduleThatDoesNotGoForward(t *testing.T) {
	t.Parallel()
	change := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	for _, by := range []time.Duration{0, time.Hour} {
		s := backward{grid(20 * time.Minute), change.Add(-time.Hour), change, by}
		var stuck []time.Time
		tt := timetable{schedule: s, stuck: func(asked time.Time) { stuck = append(stuck, asked) }}
		last, fired := change.Add(-2*time.Hour), 0
		for last.Before(change.Add(time.Hour)) {
			next := first(tt.next(last))
			require.True(t, next.After(last), "%v %v", last, next)
			last, fired = next, fired+1
		}
		require.GreaterOrEqual(t, fired, 6)
		require.NotEmpty(t, stuck)
	}
	tt := timetable{schedule: backward{never{}, time.Time{}, change.AddDate(100, 0, 0), 0}}
	require.True(t, tt.after(change).IsZero())
	_, ok := tt.latest(time.Time{}, change)
	require.False(t, ok)
}

// K3: a timer that counts by the monotonic clock comes early when the wall clock was set back. A call so
// little before a fire time that it can only be for that one gets it, with the time to wait.
func TestCallALittleEarly(t *testing.T) {
	t.Parallel()
	nine := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	before := nine.AddDate(0, 0, -1)
	for _, x := range []struct {
		schedule Schedule
		early    time.Duration
		tick     time.Time
		in       time.Duration
	}{
		{daily{}, -time.Second, nine, 0},
		{daily{}, 50 * time.Millisecond, nine, 0},
		{daily{}, 60 * time.Millisecond, nine, 60 * time.Millisecond},
		{daily{}, 128 * time.Millisecond, nine, 128 * time.Millisecond},
		{daily{}, 10 * time.Second, nine, 10 * time.Second},
		{daily{}, 11 * time.Second, before, 0},
		{grid(time.Minute), 3 * time.Second, nine, 3 * time.Second},
		{grid(time.Minute), 3001 * time.Millisecond, nine.Add(-time.Minute), 0},
		{grid(time.Second), 51 * time.Millisecond, nine.Add(-time.Second), 0},
		{oneTime(nine), 2 * time.Second, nine, 2 * time.Second},
	} {
		for _, called := range []bool{false, true} {
			tt := timetable{schedule: x.schedule}
			if called {
				_, _ = tt.advance(dueOf(&tt, nine.Add(-20*time.Second)))
			}
			tick, in, ok := tt.due(nine.Add(-x.early))
			require.True(t, ok)
			require.Equal(t, []any{x.tick, x.in}, []any{tick, in}, fmt.Sprint(x.schedule, x.early, called))
		}
	}
}

// K6: a schedule of which no tick has come has none to run.
func TestNoTickHasCome(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for _, s := range []Schedule{never{}, oneTime(now.Add(time.Hour)), oneTime(now.Add(time.Minute))} {
		tt := timetable{schedule: s}
		tick, in, ok := tt.due(now)
		require.False(t, ok)
		require.Zero(t, tick)
		require.Zero(t, in)
	}
}

// K2: a call is for the next day if this process, or another one at the same time of day, called in the same
// period a day before.
func TestNextDay(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	const day = 24 * time.Hour
	at := func(d, h, m int) time.Time { return time.Date(2026, 3, d, h, m, 0, 0, berlin) }
	for name, x := range map[string]struct {
		every                time.Duration
		former, started, now time.Time
		want                 bool
	}{
		"when the clocks go forward":                     {day, at(29, 1, 30), time.Time{}, at(30, 1, 30), true},
		"by another process, when the clocks go forward": {day, time.Time{}, at(29, 1, 30).UTC(), at(30, 1, 30), true},
		"by another process, a little later":             {day, time.Time{}, at(29, 1, 31).UTC(), at(30, 1, 30), true},
		"by another process, of another phase":           {day, time.Time{}, at(29, 2, 0).UTC(), at(30, 1, 30), false},
		"by another process, on another day":             {day, time.Time{}, at(12, 1, 30).UTC(), at(12, 23, 0), false},
		"twice a day":                                    {day, at(12, 1, 30), time.Time{}, at(12, 13, 30), false},
		"A253: late on the same day":                     {day, at(12, 1, 30), time.Time{}, at(12, 23, 59), false},
		"A277: this one was late, the other one not":     {day, at(29, 1, 55), at(29, 1, 30).UTC(), at(30, 1, 30), true},
		"A277: a clock was set back at midnight in UTC":  {day, at(12, 1, 0), time.Time{}, at(13, 0, 59), false},
		"A277: twice a day, and by another process":      {day, at(12, 13, 30), at(12, 1, 30).UTC(), at(12, 23, 30), false},
		"just now":          {day, at(29, 1, 30), time.Time{}, at(29, 1, 31), false},
		"weekly":            {7 * day, at(23, 1, 30), time.Time{}, at(30, 1, 30), true},
		"of another period": {23 * time.Hour, at(29, 1, 30), time.Time{}, at(30, 1, 30), false},
		"nothing is known":  {day, time.Time{}, time.Time{}, at(30, 1, 30), false},
	} {
		require.Equal(t, x.want, nextDay(x.every, x.former, x.started, x.now), name)
	}
}

// Two processes whose zone files have different formats find the same changes of the clocks, and agree on a schedule that has no text.
// On slim files the last day of 2024 was each of the sixteen (A468 in internal/proof/tested-failures.md).
func TestChangesOfBothFormats(t *testing.T) {
	t.Parallel()
	var samples []string
	for _, format := range []string{"slim", "fat"} {
		b, err := os.ReadFile("../internal/ticks/testdata/berlin-" + format)
		require.NoError(t, err)
		zone, err := time.LoadLocationFromTZData("Europe/Berlin", b)
		require.NoError(t, err)
		var days []string
		for _, change := range changes(zone) {
			days = append(days, change.Format(time.DateOnly))
		}
		require.Equal(t, []string{"2024-03-31", "2024-10-27", "2025-03-30", "2025-10-26"}, days, format)
		ask := asking(at{zone: zone, times: hours(9)}.Next)
		samples = append(samples, ask.sample(changes(zone)))
	}
	require.Equal(t, samples[0], samples[1])
}
