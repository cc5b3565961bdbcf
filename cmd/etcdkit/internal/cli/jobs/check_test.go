package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// Whether the last run that was due has succeeded, by what etcd has of the job.
func TestSucceeded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	ran := func(ago time.Duration, s schedlock.State) schedlock.Record {
		at := now.Add(-ago)
		r := schedlock.Record{Tick: at, State: s, Start: at, End: at, Attempt: 2, Owner: "web-7", Error: "disk full"}
		if s == schedlock.RunLost {
			r.Error = "" // no process has said why
		}
		return r
	}
	began := func(r schedlock.Record, in time.Duration) schedlock.Record { r.Start = now.Add(in); return r }
	over := func(r schedlock.Record, in time.Duration) schedlock.Record { r.End = now.Add(in); return r }
	const tomorrow = 20 * time.Hour
	const night, before, day = 6 * time.Hour, 30 * time.Hour, 26 * time.Hour
	planned := schedlock.Status{Plan: &schedlock.Plan{}}
	paused := schedlock.Status{Plan: &schedlock.Plan{}, Paused: &schedlock.Pause{By: "ada", Reason: "new disks"}}
	type runs []schedlock.Record
	done, active := schedlock.RunDone, schedlock.RunActive
	for name, c := range map[string]struct {
		st     schedlock.Status
		runs   runs
		missed time.Duration // how long ago, or 0
		within time.Duration
		want   string // why not, or "" if a run
		run    int    // of that index shows it
	}{
		"last night":                      {planned, runs{ran(night, done), ran(before, schedlock.RunFailed)}, 0, 0, "", 0},
		"last night, within":              {planned, runs{ran(night, done)}, 0, day, "", 0},
		"failed":                          {planned, runs{ran(night, schedlock.RunFailed), ran(before, done)}, 0, 0, "failed, attempt 2 by web-7: disk full", 0},
		"failed, the one before within":   {planned, runs{ran(night, schedlock.RunFailed), ran(before, done)}, 0, 2 * before, "failed, attempt 2", 0},
		"lost":                            {planned, runs{ran(night, schedlock.RunLost)}, 0, 0, "lost, attempt 2", 0},
		"unlocked":                        {planned, runs{ran(night, schedlock.RunUnlocked)}, 0, 0, "unlocked, attempt 2", 0},
		"unconfirmed":                     {planned, runs{ran(night, schedlock.RunUnconfirmed)}, 0, 0, "unconfirmed, attempt 2", 0},
		"did not run":                     {planned, runs{ran(before, done)}, night, 0, "it was due at 2026-11-28T02:00:00Z and has not started, no process has started it; the latest run, of tick 2026-11-27T02:00:00Z: done", 0},
		"did not run, within":             {planned, runs{ran(before, done)}, night, 2 * before, "it was due at", 0},
		"paused":                          {paused, runs{ran(before, done)}, night, 0, "it is paused by ada: new disks", 0},
		"paused after the run":            {paused, runs{ran(night, done)}, 0, 0, "", 0},
		"never, planned":                  {planned, nil, 0, 0, "it has never run", 0},
		"never, due":                      {planned, nil, night, 0, "no process has started it; it has never run", 0},
		"active":                          {planned, runs{ran(night, active), ran(before, done)}, 0, 0, "is active since 2026-11-28T02:00:00Z: attempt 2 by web-7", 0},
		"active, within":                  {planned, runs{ran(night, active), ran(before, done)}, 0, before, "", 1},
		"active, not within":              {planned, runs{ran(night, active), ran(before, done)}, 0, before - 1, "is active", 0},
		"active after a failure":          {planned, runs{ran(night, active), ran(before, schedlock.RunFailed)}, 0, 2 * before, "is active", 0},
		"active beyond the next time":     {planned, runs{ran(before, active)}, night, 0, "is active", 0},
		"no plan":                         {schedlock.Status{}, runs{ran(night, done)}, 0, 0, "etcd has no plan of it: --within", 0},
		"no plan, within":                 {schedlock.Status{}, runs{ran(night, done)}, 0, night, "", 0},
		"failed, and one to come":         {planned, runs{ran(-tomorrow, done), ran(night, schedlock.RunFailed)}, 0, 0, "failed, attempt 2", 0},
		"failed, and one to come, within": {planned, runs{ran(-tomorrow, done), ran(night, schedlock.RunFailed)}, 0, day, "failed, attempt 2", 0},
		"failed, and one active to come":  {planned, runs{ran(-tomorrow, active), ran(night, schedlock.RunFailed)}, 0, 0, "failed, attempt 2", 0},
		"failed, and one to start":        {planned, runs{began(ran(night/2, done), tomorrow), ran(night, schedlock.RunFailed)}, 0, 0, "failed, attempt 2", 0},
		"one to come alone":               {planned, runs{ran(-tomorrow, done)}, 0, 0, "it has never run", 0},
		"done, and one to come":           {planned, runs{ran(-tomorrow, schedlock.RunFailed), ran(night, done)}, 0, 0, "", 1},
		"a clock within a minute":         {planned, runs{ran(-time.Minute, done), ran(night, schedlock.RunFailed)}, 0, 0, "", 0},
		"did not run, and one to come":    {planned, runs{ran(-tomorrow, done), ran(before, done)}, night, 0, "the latest run, of tick 2026-11-27T02:00:00Z: done", 0},
		"end to come, not within":         {planned, runs{over(ran(before, done), tomorrow)}, 0, day, "30h0m0s ago, and --within is 26h0m0s", 0},
		"no plan, not within":             {schedlock.Status{}, runs{ran(before, done)}, 0, day, "30h0m0s ago, and --within is 26h0m0s", 0},
	} {
		missed := time.Time{}
		if c.missed > 0 {
			missed = now.Add(-c.missed)
		}
		run, why := succeeded(c.st, c.runs, missed, c.within, now)
		require.Contains(t, why, c.want, name)
		require.Equal(t, c.want == "", why == "", name)
		require.NotRegexp(t, "[: -]$", why, name)
		if c.want == "" {
			require.Equal(t, c.runs[c.run], run, name)
		}
	}
}
