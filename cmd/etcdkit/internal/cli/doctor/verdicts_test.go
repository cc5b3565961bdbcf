package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A check that runs out of time says how far it came, and is no failure of etcd's.
func TestDoctorCutShort(t *testing.T) {
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.Equal(t, levelWarn, cutShort(over, 7, "queues", over.Err())[0].Level)
	require.Equal(t, "only 7 queues could be examined in time", cutShort(over, 7, "queues", over.Err())[0].Text)
	require.Equal(t, levelFail, cutShort(over, 0, "queues", over.Err())[0].Level, "etcd has not answered at all")
	require.Equal(t, levelFail, cutShort(t.Context(), 7, "queues", errors.New("x"))[0].Level)
}

func TestVerdicts(t *testing.T) {
	clock := func(c fleet.Clock) []finding { // whose beat is relative to now
		now := time.Now()
		if c.Owner = "web-7"; c.Beat != 0 {
			c.Beat += now.UnixMilli()
		}
		return doctor.Clock(c, now)
	}
	long := time.Now().Add(-48 * time.Hour)
	failed, done := schedlock.Record{State: schedlock.RunFailed, Start: long, End: long}, schedlock.Record{State: schedlock.RunDone, End: long.Add(48 * time.Hour)}
	runs := func(records ...schedlock.Record) []finding {
		return doctor.JobRuns("j", runsOf(records, time.Now()), time.Now())
	}
	for name, c := range map[string]struct {
		got  []finding
		want doctor.Level
		text string
	}{
		"renewed":              {renewal(5*time.Second, 5*time.Second), levelOK, "answered"},
		"an older renewal":     {renewal(4*time.Second, 5*time.Second), levelFail, "less than the granted"},
		"TTL as asked":         {granted(5*time.Second, 5*time.Second), levelOK, ""},
		"TTL longer":           {granted(5*time.Second, 8*time.Second), levelWarn, "8s"},
		"TTL shorter":          {granted(5*time.Second, 4*time.Second), levelFail, "4s"},
		"clocks agree":         {clock(fleet.Clock{Measured: true, Lead: 1900}), "", ""},
		"a clock ahead":        {clock(fleet.Clock{Measured: true, Lead: 10_000}), levelWarn, "ahead of this machine's by 10s or more"},
		"a clock behind":       {clock(fleet.Clock{Measured: true, Lead: -21_000}), levelWarn, "behind this machine's by 21s"},
		"a beat that is late":  {clock(fleet.Clock{Beat: -120_000}), levelWarn, "behind this machine's by 1m0s or more"},
		"a beat in time":       {clock(fleet.Clock{Beat: -79_000}), "", ""},
		"a clock not known":    {clock(fleet.Clock{}), "", ""},
		"no run lost":          {runs(schedlock.Record{State: schedlock.RunDone}), "", ""},
		"a run lost":           {runs(schedlock.Record{State: schedlock.RunDone}, schedlock.Record{State: schedlock.RunLost}), levelWarn, "1 of 2"},
		"the last has failed":  {runs(schedlock.Record{State: schedlock.RunActive}, failed, done), levelWarn, "1 of 3 stored runs failed, the last one"},
		"failed, then done":    {runs(done, failed), doctor.Note, "1 of 2 stored runs failed"},
		"failed an hour ago":   {runs(done, schedlock.Record{State: schedlock.RunFailed, End: long.Add(47 * time.Hour)}), levelWarn, "1 of 2"},
		"unknown and refused":  {doctor.Unknown("s", 10, 2, 3), levelWarn, "2 of 10"},
		"unknown and repeated": {doctor.Unknown("s", 10, 0, 3), doctor.Note, "3 of 10"},
	} {
		var worst finding
		for _, f := range c.got {
			if worst.Level == "" || f.Level == levelFail || f.Level == levelWarn && worst.Level == levelOK {
				worst = f
			}
		}
		require.Equal(t, c.want, worst.Level, name)
		require.Contains(t, worst.Text, c.text, name)
		require.Equal(t, worst.Level != "" && worst.Level != levelOK, worst.Advice != "", "%s: a finding says what to do", name)
		require.False(t, strings.HasSuffix(worst.Text, "."), name)
	}
}

// K32: a period that no process starts is a finding, and a tick within a cooldown is none. A plan is that of Status.Overdue.
func TestDueOf(t *testing.T) {
	t.Parallel()
	at := func(hours float64) time.Time { return time.Unix(0, 0).Add(time.Duration(hours * float64(time.Hour))) }
	hourly := "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every 1h0m0s"
	cools := strings.Replace(hourly, "AtLeast 0s", "AtLeast 1h30m0s", 1)
	for name, c := range map[string]struct {
		settings                   string
		last, resumed, ended, want float64
		state                      schedlock.State
		cooled                     float64
		start                      float64 // if it is not that of the tick
	}{
		"a period":                       {hourly, 10, 0, 0, 11, schedlock.RunDone, 0, 0},
		"a period, resumed":              {hourly, 10, 12.5, 0, 13, schedlock.RunDone, 0, 0},
		"a period, and a cooldown":       {cools, 10, 0, 0, 12, schedlock.RunDone, 0, 0},
		"Unlock ends the cooldown":       {cools, 10, 0, 0, 11, schedlock.RunUnlocked, 0, 0},
		"a run outlasts the period":      {hourly, 10, 0, 12.5, 13, schedlock.RunDone, 0, 0},
		"a run ends before the next":     {hourly, 10, 0, 10.5, 11, schedlock.RunDone, 0, 0},
		"A336: unlocked after the run":   {cools, 10, 0, 10.1, 11, schedlock.RunDone, 10.5, 0},
		"A336: unlocked after a loss":    {cools, 10, 0, 0, 11, schedlock.RunLost, 10.5, 0},
		"A336: unlocked after the next":  {cools, 10, 0, 10.1, 12, schedlock.RunDone, 11.2, 0},
		"A336: unlocked by a fast clock": {cools, 10, 0, 10.1, 12, schedlock.RunDone, 40, 0},
		"A516: ended by a fast clock":    {hourly, 10, 0, 90, 11, schedlock.RunDone, 0, 0},
		"A516: begun by a fast clock":    {cools, 10, 0, 90, 11, schedlock.RunDone, 0, 89},
	} {
		st := schedlock.Status{Settings: c.settings, Last: &schedlock.Record{State: c.state, Tick: at(c.last), Start: at(c.last).Add(time.Second), End: at(c.ended)}}
		if c.start != 0 {
			st.Last.Start = at(c.start)
		}
		if c.cooled != 0 {
			st.Last.Cooled = at(c.cooled)
		}
		require.True(t, at(c.want).Equal(dueOf(st, at(c.resumed), at(48))), "%s: %v", name, dueOf(st, at(c.resumed), at(48)))
	}
}
