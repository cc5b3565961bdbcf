package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	f.Shell("jobs -N test")
	l := f.Locker("web-7")
	_, err := l.Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	_, err = l.Do(ctx, "sweep", clitest.Nothing, schedlock.Tick(clitest.Tick(0)), schedlock.Every(5*time.Minute))
	require.NoError(t, err)
	_, err = l.Do(ctx, "report", clitest.Nothing, schedlock.Tick(clitest.Tick(0)), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	end, done := f.Active(l, "import", schedlock.Tick(clitest.Tick(1)))
	f.Shell("jobs pause -N test invoices")
	f.Shell("jobs pause -N test invioces --reason 'database migration'")
	f.Shell("jobs pause -N test invoices --reason 'database migration'")
	st, err := l.Status(ctx, "invoices")
	require.NoError(t, err)
	f.Shows(st.Paused.By, "etcdkit jobs pause by ada@ci-3, process 4242")
	f.Shell("jobs pause -N test import --reason 'disk is full' -o json")
	st, err = l.Status(ctx, "import")
	require.NoError(t, err)
	f.Shows(st.Token, "4711")
	f.Shows(st.Paused.By, "etcdkit jobs pause by ada@ci-3, process 4242")
	f.Shell("jobs pause -N test new --reason 'not yet' --before-first-run")
	f.Shell("jobs -N test")
	f.Shell("jobs list -N test")
	f.Shell("jobs list -N other")
	f.Shell("jobs -N test -o json")
	f.Shell("jobs resume -N test invoices")
	f.Shell("jobs resume -N test import -o json")
	f.Shell("jobs resume -N test invioces")
	end()
	require.NoError(t, testkit.Got(t, done, "the run ends"))
	f.Golden("jobs")
}

// A planned time that no process has started is no missing one: the list says since when it is overdue. A job whose process has
// ended is not idle.
func TestJobsOverdue(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	l := f.Locker("web-7")
	now := time.Now().UTC()
	daily := schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: each{24 * time.Hour}}
	ends := f.Session("web-8")
	last, err := schedlock.New(ends, nil)
	require.NoError(t, err)
	nights, err := crontab.Parse("0 9 * * *", time.UTC)
	require.NoError(t, err)
	job, err := last.Job("gone", nights, clitest.Nothing)
	require.NoError(t, err)
	job.Next(now) // as a cron library does
	require.Eventually(t, func() bool {
		st, err := l.Status(ctx, "gone")
		return err == nil && st.Plan != nil
	}, testkit.Soon, 5*time.Millisecond)
	require.NoError(t, ends.Close(ctx))
	for name, before := range map[string]time.Duration{"late": 80 * time.Hour, "punctual": time.Hour} {
		_, err := l.Do(testkit.Context(t), name, clitest.Nothing, schedlock.Tick(now.Add(-before).Truncate(time.Second)), schedlock.Planned(daily, 0))
		require.NoError(t, err)
	}
	f.Shell("jobs -N test")
	f.Shell("jobs -N test -o json")
	f.Golden("jobs-overdue")
}

// Whether the last run that was due has succeeded is an exit code: also when no process of the job lives.
func TestJobsCheck(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	now := time.Now().UTC().Truncate(time.Second)
	daily := schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: each{24 * time.Hour}}
	ends := f.Session("web-7") // and is gone when the job is looked at
	for _, job := range []struct {
		name  string
		ago   time.Duration
		fails error
		opts  []schedlock.CallOption
	}{
		{"invoices", time.Hour, nil, []schedlock.CallOption{schedlock.Planned(daily, 0)}},
		{"statements", time.Hour, errors.New("disk full"), []schedlock.CallOption{schedlock.Planned(daily, 0)}},
		{"reports", 80 * time.Hour, nil, []schedlock.CallOption{schedlock.Planned(daily, 0)}},
		{"sweep", time.Hour, nil, nil},
	} {
		l, err := schedlock.New(ends, nil)
		require.NoError(t, err)
		_, err = l.Do(ctx, job.name, func(context.Context, *schedlock.Run) error { return job.fails },
			append(job.opts, schedlock.Tick(now.Add(-job.ago)))...)
		require.ErrorIs(t, err, job.fails)
	}
	then, err := schedlock.New(ends, &schedlock.Options{Now: func() time.Time { return time.Now().Add(-80 * time.Hour) }})
	require.NoError(t, err)
	nights, err := crontab.Parse("0 9 * * *", time.UTC)
	require.NoError(t, err)
	planned, err := then.Job("nightly", nights, clitest.Nothing)
	require.NoError(t, err)
	planned.Next(now.Add(-80 * time.Hour)) // as a cron library does
	reader := f.Locker("web-8")
	require.Eventually(t, func() bool {
		st, err := reader.Status(ctx, "nightly")
		return err == nil && st.Plan != nil
	}, testkit.Soon, 5*time.Millisecond)
	require.NoError(t, ends.Close(ctx))
	list := f.Run("jobs", "-N", "test").Out // A368
	require.Regexp(t, `nightly\s+no process`, list)
	require.Regexp(t, `invoices\s+idle`, list, "calls start it")
	require.Equal(t, 1, strings.Count(f.Run("jobs", "-N", "test", "-o", "json").Out, `"no_process":true`))
	for line, want := range map[string]string{
		"nightly":  `job nightly: it was due at \S+ and has not started, no process has started it; it has never run`,
		"invoices": "", "invoices --within 1h": "", "sweep --within 1h": "", "invoices -o json": "",
		"statements": "job statements: the run of tick \\S+: failed, attempt 1 by web-7: disk full",
		"reports":    "job reports: it was due at \\S+ and has not started, no process has started it; the latest run, of tick \\S+: done",
		"sweep":      "etcd has no plan of it: --within says", "invioces": "no such job",
	} {
		r := f.Run(append([]string{"jobs", "check", "-N", "test"}, strings.Fields(line)...)...)
		if want == "" {
			require.Zero(t, r.Code, "%s: %s", line, r.Err)
			require.Contains(t, r.Out, "done", line)
			continue
		}
		require.Equal(t, exit.Failed, r.Code, line)
		require.Regexp(t, want, r.Err, line)
	}
	require.Equal(t, exit.Usage, f.Run("jobs", "check", "-N", "test", "invoices", "--within", "-1h").Code)
	require.NoError(t, f.Locker("web-8").Pause(ctx, "reports", "new disks"))
	require.Zero(t, f.Run("jobs", "check", "-N", "test", "reports").Code, "what was due before the pause does not count")
	r := f.Run("jobs", "check", "-N", "test", "reports", "--within", "1ns")
	require.Equal(t, exit.Failed, r.Code)
	require.Contains(t, r.Err, "and --within is 1ns")
}

// each is a schedule with a fire time so long after the one before.
type each struct{ time.Duration }

func (e each) Next(t time.Time) time.Time { return t.Add(e.Duration) }

func TestJobsUnlock(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	l := f.Locker("web-7")
	_, done := f.Active(l, "import", schedlock.Tick(clitest.Tick(1)))
	st, err := l.Status(ctx, "import")
	require.NoError(t, err)
	f.Shows(st.Token, "4711")
	f.Shows(st.Token-1, "4700")
	f.Shell("jobs unlock -N test import --reason 'host is gone'")
	f.Shell("jobs unlock -N test import --yes")
	f.Shell("jobs unlock -N test import --yes --reason 'host is gone'")
	f.Shell("jobs unlock -N test import --token 4700 --yes --reason 'host is gone'")
	now, err := l.Status(ctx, "import")
	require.NoError(t, err)
	require.Equal(t, st.Token, now.Token, "none of these has ended it")
	f.Shell("jobs unlock -N test import --token 4711 --yes --reason 'host is gone'")
	require.ErrorIs(t, testkit.Got(t, done, "the run ends"), schedlock.ErrUnlocked)
	f.Shell("jobs unlock -N test import --token 4711 --yes --reason 'host is gone'")
	f.Shell("jobs unlock -N test import --yes --reason 'host is gone'")
	_, err = l.Do(ctx, "report", clitest.Nothing, schedlock.Tick(clitest.Tick(1)), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	f.Shell("jobs unlock -N test report --reason 'once more'")
	f.Shell("jobs unlock -N test report --yes --reason 'once more'")
	records, err := l.History(ctx, "import")
	require.NoError(t, err)
	f.Shows(records[0].By, "etcdkit jobs unlock by ada@ci-3, process 4242")
	f.Shell("jobs history -N test import")
	f.Shell("jobs history -N test import -o json")
	f.Shell("jobs -N test -o json")
	f.Golden("jobs-unlock")
}

func TestJobsTrigger(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	l := f.Locker("web-7")
	f.Shell("jobs trigger -N test invoices") // not after the job is made: it writes its plan then
	end := make(chan struct{})
	job, err := l.Job("invoices", schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { <-end; return nil })
	require.NoError(t, err)
	job.Next(time.Now()) // as a cron library does
	require.NoError(t, l.Pause(testkit.Context(t), "invoices", "not yet", schedlock.BeforeFirstRun()))
	f.Shell("jobs trigger -N test invoices --wait 1s")
	require.NoError(t, l.Resume(testkit.Context(t), "invoices"))
	f.Shell("jobs trigger -N test invoices --wait 1m --reason 'customer waits'")
	close(end)
	var records []schedlock.Record
	require.Eventually(t, func() bool {
		records, err = l.History(testkit.Context(t), "invoices")
		return err == nil && len(records) == 1 && records[0].State == schedlock.RunDone
	}, testkit.Soon, 10*time.Millisecond)
	f.Shows(records[0].Request, "4f5b2c0d9e8a7163")
	f.Shell("jobs history -N test invoices -o json")
	f.Shell("jobs history -N test invoices")
	f.Golden("jobs-trigger")
}

func TestJobsForget(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	retired := f.Session("web-7")
	l, err := schedlock.New(retired, nil)
	require.NoError(t, err)
	_, err = l.Do(ctx, "invoices-2024", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	_, err = f.Locker("web-8").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	require.NoError(t, retired.Close(ctx))
	f.Shell("jobs -N test")
	f.Shell("jobs forget -N test invoices-2024")
	f.Shell("jobs forget -N test invoices-2024 --yes -o json")
	f.Shell("jobs forget -N test invoices-2024 --yes")
	f.Shell("jobs forget -N test invoices --yes")
	f.Shell("jobs -N test")
	f.Golden("jobs-forget")
}

func TestJobsHistory(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	l := f.Locker("web-7")
	every := schedlock.Every(5 * time.Minute)
	_, err := l.Do(ctx, "sweep", clitest.Nothing, schedlock.Tick(clitest.Tick(0)), every)
	require.NoError(t, err)
	_, err = l.Do(ctx, "sweep", func(context.Context, *schedlock.Run) error { return errors.New("no space") }, schedlock.Tick(clitest.Tick(1)), every)
	require.ErrorContains(t, err, "no space")
	dies := f.Session("web-9")
	other, err := schedlock.New(dies, nil)
	require.NoError(t, err)
	_, done := f.Active(other, "sweep", schedlock.Tick(clitest.Tick(4)), every)
	_, err = f.Etcd.Client().Revoke(ctx, dies.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, testkit.Got(t, done, "the run ends"), schedlock.ErrLost)
	f.Shell("jobs history -N test sweep")
	f.Shell("jobs history -N test sweep --limit 1")
	f.Shell("jobs history -N test sweep -o json")
	end, done := f.Active(l, "sweep", schedlock.Tick(clitest.Tick(5)), every)
	st, err := l.Status(ctx, "sweep")
	require.NoError(t, err)
	f.Shows(st.Token, "4711")
	f.Shell("jobs history -N test sweep --limit 1 -o json")
	end()
	require.NoError(t, testkit.Got(t, done, "the run ends"))
	n := 0
	_, err = l.Do(ctx, "retried", func(context.Context, *schedlock.Run) error {
		if n++; n == 1 {
			return errors.New("no space")
		}
		return nil
	}, schedlock.Tick(clitest.Tick(1)), schedlock.RetryFailed(1, time.Millisecond))
	require.NoError(t, err)
	f.Shell("jobs history -N test retried")
	f.Shell("jobs history -N test retried -o json")
	f.Shell("jobs history -N test nothing")
	f.Shell("jobs history -N test sweep --limit -1")
	f.Golden("jobs-history")
}

func TestNextFire(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 3, 0, 0, time.UTC)
	st := schedlock.Status{Settings: "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every 5m0s"}
	require.Equal(t, now.Add(2*time.Minute), st.NextFire(now))
	st.Last = &schedlock.Record{Tick: now.Add(2 * time.Minute)} // by a process whose clock is ahead
	require.Equal(t, now.Add(7*time.Minute), st.NextFire(now))
	st.Settings = "AtMost 1h0m0s, AtLeast 0s, Retries 0"
	require.Zero(t, st.NextFire(now))
}

// Each run is a line, with its start and its end; an interruption ends the stream.
func TestJobsWatch(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Also = []clitest.Pattern{{Of: regexp.MustCompile(`"token":"\d+"`), As: `"token":"4711"`}}
	l := f.Locker("web-7")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	_, err := l.Do(ctx, "sweep", clitest.Nothing, schedlock.Tick(clitest.Tick(-1001)))
	require.NoError(t, err, "the job is known")
	read, write := io.Pipe()
	done := make(chan clitest.Result, 1)
	go func() {
		var errs strings.Builder
		args := []string{"--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix, "jobs", "watch", "-N", "test", "sweep", "-o", "json"}
		code := cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: write, Err: &errs})
		_ = write.Close()
		done <- clitest.Result{Code: code, Err: errs.String()}
	}()
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for n := 0; len(lines) == 0; n++ { // until the watch is open
		_, err := l.Do(ctx, "sweep", clitest.Nothing, schedlock.Tick(clitest.Tick(-1000+n)))
		require.NoError(t, err)
	}
	_, err = l.Do(ctx, "sweep", clitest.Nothing, schedlock.Tick(clitest.Tick(5)))
	require.NoError(t, err)
	_, ended := f.Active(l, "sweep", schedlock.Tick(clitest.Tick(6)))
	require.NoError(t, l.Unlock(ctx, "sweep", "host is gone"))
	require.ErrorIs(t, testkit.Got(t, ended, "the run ends"), schedlock.ErrUnlocked)
	f.Script.WriteString("$ etcdkit jobs watch -N test sweep -o json\n")
	var states []schedlock.State
	for len(states) < 4 {
		var r struct {
			output.Form
			Name  string
			Tick  time.Time
			State schedlock.State
		}
		line := testkit.Got(t, lines, "a line")
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, []string{"etcdkit.run/v1", "sweep"}, []string{r.Schema, r.Name})
		if !r.Tick.Before(clitest.Tick(5)) {
			states = append(states, r.State)
			f.Script.WriteString(line + "\n")
		}
	}
	require.Equal(t, []schedlock.State{schedlock.RunActive, schedlock.RunDone, schedlock.RunActive, schedlock.RunUnlocked}, states)
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	r := testkit.Got(t, done, "it ends")
	require.Equal(t, 130, r.Code)
	require.Contains(t, r.Err, "ended by a signal: interrupt")
	f.Golden("jobs-watch")
}

// A change that was made is not reported as if it had failed, and a pause names the one that it replaces.
func TestChangesAreReported(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	l, err := schedlock.New(f.Session("web-7"), nil)
	require.NoError(t, err)
	_, err = l.Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	require.Empty(t, f.Run("jobs", "pause", "invoices", "-N", "test", "--reason", "first").Err)
	again := f.Run("jobs", "pause", "invoices", "-N", "test", "--reason", "second")
	require.Zero(t, again.Code)
	require.Regexp(t, `^invoices was paused before, by etcdkit jobs pause by .*: first\. This pause takes its place`, strings.Replace(again.Err, "takes the place of that one", "takes its place", 1))
	f.Crowd("charge")
	for args, want := range map[string]string{
		"jobs resume invoices":       "the change was made",
		"limit charge 7":             "the limit was changed",
		"limit rate/mail 7 --create": "the limit was changed",
	} {
		var errs bytes.Buffer
		line := append(strings.Fields(args), "-N", "test", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix)
		require.Equal(t, exit.Failed, cli.Execute(ctx, line, verb.Streams{In: strings.NewReader(""), Out: clitest.Full{}, Err: &errs}), args)
		require.Contains(t, errs.String(), want)
	}
	st, err := l.Status(ctx, "invoices")
	require.NoError(t, err)
	require.Nil(t, st.Paused)
}
