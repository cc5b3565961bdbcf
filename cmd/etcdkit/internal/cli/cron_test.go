package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/schedlock"
)

const nightCrontab = `CRON_TZ=Europe/Berlin
SHELL=/bin/bash
# job: backup at-most=2h retries=1
30 2 * * *  /usr/local/bin/backup --all
# job: sweep
0 * * * *  sweep
# job: leap
0 0 29 2 *  leap /srv/years
`

// TestCronCheckTranscript is the example of the documentation, on one day.
func TestCronCheckTranscript(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	jobs, problems := crontab.Read(nightCrontab, nil)
	require.Empty(t, problems)
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, output := range []string{"table", "json"} {
		var out bytes.Buffer
		v := cronRun{app: &app{std: Streams{Out: &out}, output: output}}
		require.NoError(t, v.print(jobs, now))
		line := map[string]string{"table": "", "json": " -o json"}[output]
		fmt.Fprintf(&f.script, "$ etcdkit cron --check crontab%s\n%s", line, &out)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("0 3 * * * backup\n# job: sweep\n*/90 * * * * sweep\n# job: leap\n0 0 30 2 * leap\n# job: start\n@reboot start\n"), 0o600))
	f.shows(bad, "bad")
	require.Equal(t, exitUsage, f.shell("cron --check --zone UTC bad").code)
	f.golden("cron")
}

// What a wrong call is refused with.
func TestCronRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("# nothing\nA=b\n"), 0o600))
	for args, want := range map[string]string{
		"cron " + empty:                  "has no line that runs a command",
		"cron " + empty + ".no":          "no such file",
		"cron " + empty + " --zone Mars": `--zone "Mars" is no time zone`,
		"cron " + empty + " --grace -1s": "--grace -1s is negative",
	} {
		r := f.run(append(strings.Fields(args), "-N", "test")...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.err, want, args)
	}
}

// clockwork is a job that notes when it is run.
type clockwork struct {
	next func(time.Time) time.Time
	mu   sync.Mutex
	runs []time.Time
}

func (c *clockwork) Next(t time.Time) time.Time { return c.next(t) }

func (c *clockwork) Run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, time.Now())
}

// A line runs at its fire times for a week of virtual time, and no more when its end has come.
func TestKeepTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := crontab.Parse("30 2 * * *", time.UTC)
		require.NoError(t, err)
		c := &clockwork{next: s.Next}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 7*24*time.Hour)
		defer cancel()
		keepTime(ctx, c)
		require.Len(t, c.runs, 7)
		for i, at := range c.runs {
			require.Equal(t, begun.UTC().AddDate(0, 0, i).Add(150*time.Minute), at.UTC())
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that never fires
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		keepTime(ctx, &clockwork{next: func(time.Time) time.Time { return time.Time{} }})
	})
}

// What is said about the ends of calls.
func TestNews(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]struct {
		outcome schedlock.Outcome
		err     error
	}{
		"done, took 3s":                      {schedlock.Ran, nil},
		"exit code 3":                        {schedlock.Failed, errors.New("exit code 3")},
		"etcd is away":                       {schedlock.NotClaimed, errors.New("etcd is away")},
		"the run before is active, by web-7": {schedlock.StillRunning, nil},
		"the job is paused":                  {schedlock.Paused, nil},
	} {
		require.Equal(t, want, newsOf(schedlock.Result{Outcome: of.outcome, Owner: "web-7", Took: 3 * time.Second}, of.err))
	}
	require.Empty(t, newsOf(schedlock.Result{Outcome: schedlock.Claimed}, nil))
	require.Equal(t, []string{"B=2", "A=3"}, effective([]string{"A=1", "B=2", "A=3"}))
}
