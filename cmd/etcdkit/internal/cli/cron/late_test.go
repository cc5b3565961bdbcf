package cron

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// lineOf reads a crontab of one line.
func lineOf(t *testing.T, options, schedule string) crontab.Job {
	t.Helper()
	jobs, problems := crontab.Read("# job: backup "+options+"\n"+schedule+" x", time.UTC)
	require.Empty(t, problems)
	return jobs[0]
}

// A666: how late a line may be started. With retries a run that was lost at its end is still repeated.
func TestLateness(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	for _, x := range []struct {
		options, schedule string
		want              time.Duration
	}{
		{"", "30 2 * * *", time.Hour},
		{"", "0 0 29 2 *", time.Hour},
		{"", "*/10 * * * *", 5 * time.Minute},
		{"", "0 9,10,18 * * *", 30 * time.Minute},
		{"at-most=2h", "30 2 * * *", time.Hour},
		{"late-by=3h", "30 2 * * *", 3 * time.Hour},
		{"late-by=3h retries=1", "30 2 * * *", 3 * time.Hour},
		{"retries=1", "30 2 * * *", 0},
		{"retries=1 at-most=2h", "30 2 * * *", 3*time.Hour + ttl + lossSeen},
		{"retries=3 at-most=2h", "30 2 * * *", 7*time.Hour + 3*(ttl+lossSeen)},
		{"retries=1 at-most=2h", "0 * * * *", 0},
		{"retries=12 at-most=2h", "30 2 * * *", 0},
		{"retries=1000 at-most=2540400h", "30 2 * * *", 0},
	} {
		require.Equal(t, x.want, lateness(lineOf(t, x.options, x.schedule), ttl), x)
	}
}

// lateLine runs a line on one machine for 36 hours in virtual time, from 01:00, and returns when it was run and what was said.
func lateLine(t *testing.T, options string, now func() time.Time, faults func(*etcdfake.Client)) (runs []string, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 36*time.Hour)
	defer cancel()
	client := etcdfake.New(t).NewClient()
	s, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{Prefix: "/late", TTL: 5 * time.Minute, Logger: zap.NewNop()})
	require.NoError(t, err)
	var out strings.Builder
	v := cronRun{Execution: guarded.Execution{Call: &verb.Call{Std: verb.Streams{Err: &out}, Etcd: verb.Connection{Timeout: time.Minute}}, Verb: "cron"}}
	line := lineOf(t, options, nightly)
	var l *schedlock.Locker
	l, err = schedlock.New(s, &schedlock.Options{Now: now, Done: func(res schedlock.Result, err error) {
		v.report(res, err)
		v.sayUnstarted(ctx, l, []crontab.Job{line}, res, now)
	}})
	require.NoError(t, err)
	planned := schedlock.Crontab{Text: line.Schedule.Text(), Zone: line.Schedule.Location(), Schedule: line.Schedule}
	job, err := l.Job(line.Name, planned, func(context.Context, *schedlock.Run) error {
		runs = append(runs, now().UTC().Format("02 15:04"))
		return nil
	}, settingsOf(line, 5*time.Minute)...)
	require.NoError(t, err)
	if faults != nil {
		go faults(client)
	}
	keepTime(ctx, job, now)
	require.NoError(t, s.Close(context.Background()))
	return runs, out.String()
}

// A665: a machine is suspended from 02:00 to 13:00, or etcd is away: the line of 02:30 is not started when the day has come, which
// is said; the next night it is. late-by permits it.
func TestLineThatComesLate(t *testing.T) {
	t.Parallel()
	suspended := func() func() time.Time {
		begun := time.Now()
		return func() time.Time {
			if now := time.Now(); now.Sub(begun) < time.Hour {
				return now.Add(time.Hour)
			}
			return time.Now().Add(12 * time.Hour)
		}
	}
	away := func(c *etcdfake.Client) {
		time.Sleep(time.Hour)
		c.Cut()
		time.Sleep(11 * time.Hour)
		c.Heal()
	}
	ahead := func() func() time.Time { return func() time.Time { return time.Now().Add(time.Hour) } }
	for name, x := range map[string]struct {
		options string
		clock   func() func() time.Time
		faults  func(*etcdfake.Client)
		want    []string
		said    string
	}{
		"suspended":                      {"", suspended, nil, []string{"02 02:30"}, "not run: no machine had started it 1h0m0s after its time"},
		"suspended, with a later bound":  {"late-by=12h", suspended, nil, []string{"01 13:00", "02 02:30"}, "done"},
		"etcd is away":                   {"", ahead, away, []string{"02 02:30"}, "done"},
		"etcd is away, and more is late": {"late-by=12h", ahead, away, []string{"01 13:00", "02 02:30"}, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs, said := lateLine(t, x.options, x.clock(), x.faults)
				require.Equal(t, x.want, runs)
				require.Contains(t, said, x.said)
			})
		})
	}
}
