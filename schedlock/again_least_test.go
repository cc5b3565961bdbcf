package schedlock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A564: further attempts start when AtLeast has passed, and last as long again. Where none can start before the next tick, or the next
// tick would be skipped by accident, the options are refused, at any time of the year and for calls as for a Job.
func TestAtLeastWithFurtherAttempts(t *testing.T) {
	t.Parallel()
	const twice, none = " with Retries: a further attempt", "RetryFailed with AtLeast"
	tenMinutes := AtMost(10 * time.Minute)
	for name, x := range map[string]struct {
		least   time.Duration
		opts    []Option
		refused string // for each hour
		days    string // for each day in Berlin
	}{
		"Retries, a fifth of an hour":       {12 * time.Minute, []Option{Retries(1)}, "", ""},
		"Retries, less than half":           {29 * time.Minute, []Option{Retries(1)}, "", ""},
		"Retries, half an hour":             {30 * time.Minute, []Option{Retries(1)}, twice, ""},
		"Retries, most of it":               {50 * time.Minute, []Option{Retries(1)}, twice, ""},
		"Retries, to skip ticks":            {90 * time.Minute, []Option{Retries(1)}, "", ""},
		"Retries, half of the shortest day": {11*time.Hour + 30*time.Minute, []Option{Retries(1)}, "", twice},
		"Retries, half a day":               {12 * time.Hour, []Option{Retries(1)}, "", twice},
		"RetryFailed, AtMost fits":          {29 * time.Minute, []Option{RetryFailed(1, time.Second), tenMinutes}, "", ""},
		"RetryFailed, so does AtLeast":      {31 * time.Minute, []Option{RetryFailed(1, time.Second), tenMinutes}, none, ""},
		"RetryFailed, the pause does not":   {29 * time.Minute, []Option{RetryFailed(1, 2*time.Minute), tenMinutes}, none, ""},
		"RetryFailed, AtMost does not":      {15 * time.Minute, []Option{RetryFailed(1, time.Second), AtMost(45 * time.Minute)}, none, ""},
		"RetryFailed, to skip ticks":        {90 * time.Minute, []Option{RetryFailed(1, time.Second), tenMinutes}, none, ""},
		"RetryFailed, all is long":          {mostLeast, []Option{RetryFailed(1, math.MaxInt64), AtMost(math.MaxInt64)}, "RetryFailed", "RetryFailed"},
		"neither":                           {50 * time.Minute, nil, "", ""},
	} {
		opts := append([]Option{AtLeast(x.least)}, x.opts...)
		jobs, calls := make([]JobOption, len(opts)), []CallOption{Every(time.Hour)}
		for i, o := range opts {
			jobs[i], calls = o, append(calls, o)
		}
		_, call := newRequest(calls)
		s, err := newSettings(0, jobs)
		require.NoError(t, err, name)
		_, wrapped := newSettings(time.Hour, jobs)
		for now := time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC); now.Year() < 2027; now = now.AddDate(0, 1, 3) {
			hourly, daily := timetable{schedule: grid(time.Hour)}, timetable{schedule: at{zone(t, "Europe/Berlin"), nil, hours(9)}}
			is := func(refused string, err error) {
				if refused == "" {
					require.NoError(t, err, name)
					return
				}
				require.ErrorIs(t, err, ErrInvalid, name)
				require.ErrorContains(t, err, refused, name)
			}
			is(x.refused, hourly.check(s, now))
			is(x.refused, call)
			is(x.days, daily.check(s, now))
			if s.retries > 0 { // Wrap takes no RetryFailed
				is(x.refused, wrapped)
			}
		}
	}
}

// A564: a call that waits for the end of a cooldown ends at once if it is too late for an attempt then.
func TestCooldownThatEndsTooLate(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cooldown := func(at time.Time) []*mvccpb.KeyValue {
		return []*mvccpb.KeyValue{{Value: []byte(record.Lock{AtMS: at.UnixMilli(), Owner: "web"}.Encode())}}
	}
	second := decision{action: await, plan: plan{tick: tick, attempt: 2}, owner: "web"}
	paused := second
	paused.plan.pause = 10 * time.Minute
	least := settings{atLeast: time.Hour, atMost: time.Minute}
	for name, x := range map[string]struct {
		next  decision
		began time.Duration
		r     request
		now   time.Duration
		late  bool
	}{
		"in time":                       {second, 0, request{settings: least, within: 2 * time.Hour}, time.Minute, false},
		"LateBy ends before":            {second, 0, request{settings: least, within: 30 * time.Minute}, time.Minute, true},
		"LateBy ends with it":           {second, 0, request{settings: least, within: time.Hour}, time.Minute, true},
		"the next fire time is before":  {second, 0, request{settings: least, again: tick.Add(time.Hour)}, time.Minute, true},
		"no bound":                      {second, 0, request{settings: least}, time.Minute, false},
		"after the pause, in time":      {paused, 0, request{settings: least, next: tick.Add(130 * time.Minute)}, time.Minute, false},
		"the next one would be skipped": {paused, 0, request{settings: least, next: tick.Add(129 * time.Minute)}, time.Minute, true},
		"by a clock that is ahead":      {second, time.Hour, request{settings: least, within: 90 * time.Minute}, time.Minute, false},
		"of an active run":              {decision{action: await}, 0, request{settings: least, within: time.Minute}, 0, false},
		"another decision":              {decision{action: send, plan: second.plan}, 0, request{settings: least, within: time.Minute}, 0, false},
	} {
		st := state{cooldown: cooldown(tick.Add(x.began))}
		got := st.cooled(x.next, x.r, tick.Add(x.now))
		if x.late {
			require.Equal(t, []any{skip, Late}, []any{got.action, got.outcome}, name)
		} else {
			require.Equal(t, x.next, got, name)
		}
	}
	st := state{cooldown: []*mvccpb.KeyValue{{Value: []byte("by hand")}}}
	require.Equal(t, second, st.cooled(second, request{settings: least, within: time.Minute}, tick))
}
