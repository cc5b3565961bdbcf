package cron_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/cron"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Several machines call at once: one runs the command, and the others exit with 0, and print a line if they are asked to.
func TestJobsRunOnce(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	file := filepath.Join(t.TempDir(), "runs")
	var all []*clitest.Program
	for range 5 {
		all = append(all, f.JobRun("backup", "--every", "24h", "-v", "--", "sh", "-c", "echo $ETCDKIT_KIND $ETCDKIT_NAME $ETCDKIT_ATTEMPT >> "+file))
	}
	elsewhere := 0
	for _, p := range all {
		code, out := p.All()
		require.Zero(t, code, p.Errs)
		if out != "" {
			require.Regexp(t, `^job backup: tick \S+ was run elsewhere, by etcdkit jobs run by \S+, process \d+: done\n$`, out)
			elsewhere++
		}
	}
	require.Equal(t, 4, elsewhere)
	code, out := f.JobRun("backup", "--every", "24h", "--", "false").All()
	require.Zero(t, code)
	require.Empty(t, out, "cron would send it by mail")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "job backup 1\n", string(text))
	h, err := f.Locker("reader").History(testkit.Context(t), "backup")
	require.NoError(t, err)
	require.Len(t, h, 1)
	require.Equal(t, schedlock.RunDone, h[0].State)
}

// Ten nights, in which the lines of two machines call at the same time by clocks up to a minute apart: the command runs
// once a night, with --every and with --cron.
func TestJobsRunTenNights(t *testing.T) {
	t.Parallel()
	for _, schedule := range [][]string{{"--every", "24h"}, {"--cron", "30 1 * * *", "--zone", "Europe/Berlin"}} {
		t.Run(schedule[0], func(t *testing.T) {
			t.Parallel()
			f := clitest.New(t)
			file := filepath.Join(t.TempDir(), "runs")
			for night := range 10 {
				call := time.Date(2026, 3, 24+night, 1, 30, 0, 0, cron.Berlin(t, "2026-01-01 00:00:00").Location())
				apart := time.Duration(night*night-40) * time.Second // from -40 s to 41 s
				if schedule[0] == "--cron" {
					apart = apart.Abs() // no cron calls before the time of its line, by its own clock
				}
				var both []*clitest.Program
				for _, clock := range []time.Duration{2 * time.Second, 2*time.Second + apart} {
					p := f.Prepare(nil, append(append([]string{"backup"}, schedule...), "--", "sh", "-c", "echo $ETCDKIT_TICK >> "+file)...)
					p.Cmd.Args = append([]string{p.Cmd.Args[0], "jobs"}, p.Cmd.Args[1:]...)
					p.Cmd.Env = append(p.Cmd.Env, fmt.Sprintf("%s=%v", clockAhead, time.Until(call.Add(clock))))
					p.Begin()
					both = append(both, p)
				}
				for _, p := range both {
					code, _ := p.All()
					require.Zero(t, code, "night %d: %s", night, p.Errs)
				}
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, 10, strings.Count(string(text), "\n"), string(text))
		})
	}
}

// K25: after its first run a job that cron calls has a next time, though no process of it lives.
func TestJobsRunIsPlanned(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for name, schedule := range map[string][]string{"every": {"--every", "24h"}, "cron": {"--cron", "30 1 * * *", "--zone", "Europe/Berlin"}} {
		p := f.JobRun(append(append([]string{name}, schedule...), "--", "true")...)
		code, _ := p.All()
		require.Zero(t, code, p.Errs)
		st, err := f.Locker("reader").Status(testkit.Context(t), name)
		require.NoError(t, err)
		require.True(t, st.Plan.Called)
		want := st.Last.Tick.Add(24 * time.Hour)
		if name == "cron" {
			want = cron.InBerlin(t, "30 1 * * *").Next(st.Last.Tick)
		}
		require.True(t, st.NextFire(time.Now()).Equal(want), "%v, %v", st.NextFire(time.Now()), want)
		res := f.Run("jobs", "list", "-N", "test")
		require.Contains(t, res.Out, output.Instant(want), res.Err)
		res = f.Run("jobs", "trigger", "-N", "test", name, "--reason", "now", "--wait", "100ms")
		require.Equal(t, exit.NotAcquired, res.Code, res.Err)
		require.Contains(t, res.Err, "calls start it", "K64")
	}
}

// The exit code is the command's where it ran, and the history has it; a call of another machine exits with 0.
func TestJobsRunExitCodes(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	p := f.JobRun("fails", "--cron", "0 0 1 1 *", "--zone", "Europe/Berlin", "--", "sh", "-c", "exit 3")
	code, out := p.All()
	require.Equal(t, 3, code, p.Errs)
	require.Empty(t, out)
	l := f.Locker("web-7")
	h, err := l.History(ctx, "fails")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunFailed, h[0].State)
	require.Equal(t, "exit code 3", h[0].Error)
	require.Equal(t, "12-31 23:00", h[0].Tick.Format("01-02 15:04"), "midnight in Berlin")

	require.NoError(t, l.Pause(ctx, "paused", "moving house", schedlock.BeforeFirstRun()))
	p = f.JobRun("paused", "--every", "1h", "--", "false")
	code, _ = p.All()
	require.Equal(t, exit.NotAcquired, code)
	require.Contains(t, p.Errs.String(), "etcdkit jobs run: job paused: the job is paused, by web-7: moving house")

	then, err := schedlock.New(f.Session("web-8"), &schedlock.Options{Now: func() time.Time { return time.Now().Add(-40 * time.Minute) }})
	require.NoError(t, err)
	_, err = then.Do(ctx, "old", clitest.Nothing, schedlock.AtMost(cron.Unbounded))
	require.NoError(t, err)
	p = f.JobRun("old", "--every", "1h", "--", "false")
	code, _ = p.All()
	require.Equal(t, exit.NotAcquired, code)
	require.Contains(t, p.Errs.String(), "too old to be the one of this call")

	begun, end := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := l.Do(ctx, "long", func(context.Context, *schedlock.Run) error { close(begun); <-end; return nil }, schedlock.Tick(time.Now().Add(-time.Hour)), schedlock.AtMost(cron.Unbounded))
		done <- err
	}()
	testkit.Closed(t, begun, "it runs")
	p = f.JobRun("long", "--every", "1h", "--", "false")
	code, _ = p.All()
	require.Equal(t, exit.NotAcquired, code)
	require.Contains(t, p.Errs.String(), "job long: the run before is active, by web-7")
	close(end)
	require.NoError(t, testkit.Got(t, done, "it returns"))
}

// A machine dies during the run. A call on standby runs the command again if --retries permits that, and reports the
// loss otherwise, with what has kept it from that: it named --retries for a job that was paused meanwhile.
func TestJobsRunWhenAMachineDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retries int
		paused  bool
		says    string // or "": it runs the command again
	}{
		"no retries":         {0, false, "was lost, and is not repeated: --retries 0"},
		"one retry":          {1, false, ""},
		"one retry, a pause": {1, true, "was lost, and is not repeated: the job is paused, by etcdkit jobs pause by "},
	} {
		retries := c.retries
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.New(t)
			args := []string{"backup", "--every", "24h", "--ttl", "6s", "--grace", "100ms", "--retries", strconv.Itoa(retries), "--"}
			dies := f.JobRun(append(args, "sh", "-c", "echo started; sleep 600")...)
			require.Equal(t, "started", dies.Line())
			standby := f.JobRun(append(args, "sh", "-c", "echo again $ETCDKIT_ATTEMPT")...)
			require.Eventually(t, func() bool { // it has a session of its own
				keys := testkit.Keys(t, f.Etcd, f.Prefix, "")
				return strings.Count(strings.Join(keys, "\n"), "clock/") >= 2
			}, testkit.Soon, 20*time.Millisecond)
			if c.paused {
				require.Zero(t, f.Run("jobs", "pause", "-N", "test", "backup", "--reason", "maintenance").Code)
			}
			require.NoError(t, syscall.Kill(dies.Cmd.Process.Pid, syscall.SIGKILL))
			code, out := standby.All()
			if c.says != "" {
				require.Equal(t, exit.NotAcquired, code, standby.Errs)
				require.Contains(t, standby.Errs.String(), c.says)
				require.Empty(t, out)
				return
			}
			require.Zero(t, code, standby.Errs)
			require.Equal(t, "again 2\n", out)
			require.Regexp(t, `etcdkit jobs run: backup: tick \S+: the run by etcdkit jobs run by \S+, process \d+, attempt 1, was lost`, standby.Errs.String())
			require.Equal(t, 1, strings.Count(standby.Errs.String(), "was lost"), standby.Errs)
		})
	}
}

// B34: etcd is away when the command ends, and back before the lease has ended: the end is recorded, and the command does
// not run again.
func TestJobsRunThatEndsWithoutEtcd(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Etcd = embedtest.Start(t, nil)
	file := filepath.Join(t.TempDir(), "end")
	p := f.JobRun("backup", "--every", "24h", "--retries", "1", "--", "sh", "-c", "echo working; while [ ! -e "+file+" ]; do sleep 0.05; done; exit 3")
	require.Equal(t, "working", p.Line())
	require.NoError(t, f.Etcd.Crash(0))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	p.Says("this is repeated until etcd has it, or the lease has ended")
	time.Sleep(1500 * time.Millisecond) // other verbs wait for a second
	require.NoError(t, f.Etcd.Restart(testkit.Context(t), 0))
	code, _ := p.All()
	require.Equal(t, 3, code, p.Errs)
	h, err := f.Locker("reader").History(testkit.Context(t), "backup")
	require.NoError(t, err)
	require.Len(t, h, 1)
	require.Equal(t, schedlock.RunFailed, h[0].State)
	require.Equal(t, "exit code 3", h[0].Error)
	code, out := f.JobRun("backup", "--every", "24h", "--retries", "1", "--", "echo", "again").All()
	require.Equal(t, exit.NotAcquired, code)
	require.Empty(t, out)
}

// A run that has failed is repeated by hand, with --now: as a tick of its own, which is no reason to leave out the next one
// of the line, and not beside another run.
func TestJobsRunByHand(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	ok := filepath.Join(t.TempDir(), "repaired")
	due := time.Now().UTC().Add(-3 * time.Hour).Truncate(time.Hour)
	line := []string{"report", "--cron", fmt.Sprintf("0 %d * * *", due.Hour()), "-v", "--", "test", "-e", ok}
	byHand := append([]string{"--now"}, line...)
	code, _ := f.JobRun(line...).All()
	require.Equal(t, 1, code)
	require.NoError(t, os.WriteFile(ok, nil, 0o600))
	p := f.JobRun(line...)
	_, out := p.All()
	require.NotContains(t, out+p.Errs.String(), "done", "a call of the line repeats nothing")
	begun := time.Now()
	p = f.JobRun(byHand...)
	code, _ = p.All()
	require.Zero(t, code, p.Errs)
	l := f.Locker("web-7")
	h, err := l.History(ctx, "report")
	require.NoError(t, err)
	require.Equal(t, []schedlock.State{schedlock.RunDone, schedlock.RunFailed}, []schedlock.State{h[0].State, h[1].State})
	require.WithinRange(t, h[0].Tick, begun.Add(-time.Second), time.Now())
	st, err := l.Status(ctx, "report")
	require.NoError(t, err)
	require.True(t, st.Plan.Due.Equal(due.AddDate(0, 0, 1)), "the next time of the line stays: %v", st.Plan.Due)

	end, done := f.Active(l, "report", schedlock.Tick(time.Now()), schedlock.AtMost(3650*24*time.Hour))
	p = f.JobRun(byHand...)
	code, _ = p.All()
	require.Equal(t, exit.NotAcquired, code)
	require.Contains(t, p.Errs.String(), "the run before is active, by web-7")
	end()
	require.NoError(t, testkit.Got(t, done, "the run ends"))
	require.NoError(t, l.Pause(ctx, "report", "moving house"))
	p = f.JobRun(byHand...)
	code, _ = p.All()
	require.Equal(t, exit.NotAcquired, code)
	require.Contains(t, p.Errs.String(), "the job is paused, by web-7: moving house")
}

// A run by hand that begins after a time of --cron, and before the first call for that, has its place: the calls say so. If the
// time was run before, they say nothing.
func TestJobsRunByHandInPlaceOfATime(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	due := time.Now().UTC().Add(-3 * time.Hour).Truncate(time.Hour)
	cron := []string{"--cron", fmt.Sprintf("0 %d * * *", due.Hour()), "--"}
	for name, first := range map[string]bool{"taken": false, "run": true} {
		line := append([]string{name}, append(cron, "echo", "saved")...)
		if first {
			code, out := f.JobRun(line...).All()
			require.Zero(t, code)
			require.Equal(t, "saved\n", out)
		}
		code, out := f.JobRun(append([]string{name, "--now"}, append(cron, "echo", "by hand")...)...).All()
		require.Zero(t, code)
		require.Equal(t, "by hand\n", out)
		p := f.JobRun(line...)
		code, out = p.All()
		require.Zero(t, code, p.Errs)
		require.Empty(t, out)
		if first {
			require.NotContains(t, p.Errs.String(), "by hand")
			continue
		}
		require.Regexp(t, `^etcdkit jobs run: job taken: no run was started for `+output.Instant(due)+
			` of --cron: a run by hand has its place, of tick \S+ by etcdkit jobs run --now by \S+, process \d+, begun \S+\n$`, p.Errs.String())
	}
}

// --at-most ends the command, and a wrong command line is refused with what would be right.
func TestJobsRunFlags(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	p := f.JobRun("slow", "--every", "1h", "--at-most", "2s", "--grace", "100ms", "--", "sleep", "600")
	code, _ := p.All()
	require.Equal(t, 143, code, p.Errs)
	require.Contains(t, p.Errs.String(), "AtMost of 2s has passed; ending the command")
	require.NotContains(t, p.Errs.String(), "has not confirmed", "the end is recorded")
	h, err := f.Locker("reader").History(testkit.Context(t), "slow")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunFailed, h[0].State)
	p = f.JobRun("short", "--every", "1h", "--at-most", "1ms", "--", "true") // over before a guard can be ready
	code, _ = p.All()
	require.Equal(t, exit.NotRunnable, code, p.Errs)
	require.Contains(t, p.Errs.String(), "the command was not started: ")
	require.Contains(t, p.Errs.String(), "AtMost of 1ms has passed")
	for args, want := range map[string]string{
		"x -- true":                                "either --every or --cron",
		"x --every 1h --cron @daily -- true":       "either --every or --cron",
		"x --every 1s -- true":                     "--every 1s is not from 10s",
		"x --every 1h --zone UTC -- true":          "--zone is of --cron",
		"x --cron @daily --zone Mars -- true":      `--zone "Mars" is no time zone`,
		"x --cron @reboot -- true":                 "--cron: @reboot",
		"x --every 1h --now -- true":               "--now is of --cron",
		"x --every 1h --retries -1 -- true":        "--retries -1 is negative",
		"x --every 1h true":                        "the command follows NAME and --",
		"x --every 1h --grace 5s --ttl 6s -- true": "--ttl 6s is not",
	} {
		r := f.Run(append([]string{"jobs", "run", "-N", "test"}, strings.Fields(args)...)...)
		require.Equal(t, exit.Usage, r.Code, args)
		require.Contains(t, r.Err, want, args)
	}
}

// TestJobsRunTranscript is the example of the documentation.
func TestJobsRunTranscript(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	show := func(line string) {
		p := f.JobRun(clitest.Words(t, line)...)
		code, out := p.All()
		fmt.Fprintf(&f.Script, "$ etcdkit jobs run -N test %s\n%s%s", line, out, p.Errs)
		if code != 0 {
			fmt.Fprintf(&f.Script, "[exit code %d]\n", code)
		}
	}
	show("backup --every 24h -- echo 'saved 4711 files'")
	show("backup --every 24h --verbose -- echo 'saved 4711 files'")
	f.Shell("jobs history backup -N test")
	f.Shell("jobs pause report -N test --before-first-run --reason 'the disks are replaced'")
	show("report --cron '30 2 * * 1-5' --zone Europe/Berlin -- ./report.sh")
	f.Golden("jobs-run")
}
