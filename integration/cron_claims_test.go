package integration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/crons"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// adapters start the jobs of a process in a zone under a library, and return how it is stopped.
var adapters = map[string]func(t *testing.T, l *schedlock.Locker, loc *time.Location, lines []string, ran func(line string, tick time.Time)) (stop func()){
	"robfig/cron": func(t *testing.T, l *schedlock.Locker, loc *time.Location, lines []string, ran func(string, time.Time)) func() {
		c := cron.New(cron.WithLocation(loc))
		for _, line := range lines {
			s, err := cron.ParseStandard(line)
			require.NoError(t, err)
			job, err := l.Job(line, s, func(_ context.Context, r *schedlock.Run) error { ran(line, r.Tick()); return nil })
			require.NoError(t, err)
			c.Schedule(job, job)
		}
		c.Start()
		return func() { <-c.Stop().Done() }
	},
	"gocron": func(t *testing.T, l *schedlock.Locker, loc *time.Location, lines []string, ran func(string, time.Time)) func() {
		s, err := gocron.NewScheduler(gocron.WithLocation(loc))
		require.NoError(t, err)
		for _, line := range lines {
			locker, err := gocronlock.NewCron[gocron.Lock](l, gocron.NewDefaultCron(false))
			require.NoError(t, err)
			_, err = s.NewJob(gocron.CronJob(line, false), gocron.NewTask(func() {
				if r, ok := locker.Running(line); ok {
					ran(line, r.Tick())
				}
			}), gocron.WithName(line), gocron.WithCronImplementation(locker), gocron.WithDistributedJobLocker(locker))
			require.NoError(t, err)
		}
		s.Start()
		return func() { require.NoError(t, s.Shutdown()) }
	},
}

// quiet has its lines of the crontabs that fire up to twice an hour, and are taken by the libraries.
func quiet() (lines []string) {
	dense := map[string]bool{"* * * * *": true, "*/5 * * * *": true, "5-55/10 * * * *": true, "*/15 * * * *": true}
	for _, line := range crons.Lines() {
		if _, err := cron.ParseStandard(line); err == nil && !dense[line] {
			lines = append(lines, line)
		}
	}
	return lines
}

// around returns from when to when a change of the clock is run, and by how many processes: for a day and more, and by two,
// where the libraries differ from cron for as long.
func around(zone string, change time.Time) (from, to time.Time, processes int) {
	from = change.Add(-2 * time.Hour)
	if zone == "Australia/Lord_Howe" || zone == "Asia/Tehran" {
		return from, change.Add(26 * time.Hour), 2
	}
	return from, change.Add(4 * time.Hour), 1
}

// K47: what processes really claim around each change of the clock, in virtual time, under robfig/cron and gocron: each
// fire time of the library once, and nothing else. TestYearOfTheLibraries compares those with cronie. -short has one zone.
func TestClaimsAroundChanges(t *testing.T) {
	t.Parallel()
	for _, name := range crons.Zones {
		if testing.Short() && name != "Australia/Lord_Howe" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(name)
			require.NoError(t, err)
			windows := crons.Windows(loc)
			if len(windows) == 0 {
				windows = append(windows, crons.Window{Change: crons.Begin.Add(24 * time.Hour)})
			}
			for library := range adapters {
				for _, w := range windows {
					t.Run(library+" "+w.Change.Format("0102"), func(t *testing.T) { claims(t, library, w.Change, loc) })
				}
			}
		})
	}
}

// claims runs two processes around a change, and compares their claims.
func claims(t *testing.T, library string, change time.Time, loc *time.Location) {
	lines := quiet()
	from, to, processes := around(loc.String(), change)
	want, on := map[string][]time.Time{}, newSchedulers(t, loc)
	for _, line := range lines {
		all, err := on.fires(line, from, to)
		if library == "robfig/cron" {
			s, failed := cron.ParseStandard(line)
			all, err = robfigFires(s, loc, from, to), failed
		}
		require.NoError(t, err)
		for _, at := range all {
			want[line] = append(want[line], at.UTC())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(from.Add(-time.Second)))
		server := etcdfake.New(t)
		got := map[string][]time.Time{}
		ran := make(chan struct {
			line string
			tick time.Time
		}, 10_000)
		var stops []func()
		for range processes {
			client := server.NewClient()
			s, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{Prefix: "/claims", TTL: 5 * time.Minute, Logger: zap.NewNop()})
			require.NoError(t, err)
			defer s.Close(context.Background()) //nolint:errcheck // of the test's end
			l, err := schedlock.New(s, &schedlock.Options{Keep: 3})
			require.NoError(t, err)
			stops = append(stops, adapters[library](t, l, loc, lines, func(line string, tick time.Time) {
				ran <- struct {
					line string
					tick time.Time
				}{line, tick}
			}))
		}
		time.Sleep(time.Until(to.Add(-time.Second)))
		for _, stop := range stops {
			stop()
		}
		close(ran)
		for r := range ran {
			got[r.line] = append(got[r.line], r.tick.UTC())
		}
		for _, line := range lines {
			require.Equal(t, want[line], got[line], line)
		}
	})
}
