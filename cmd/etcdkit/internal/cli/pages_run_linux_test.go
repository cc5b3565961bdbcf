package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// runPages are the pages whose calls of the command TestPagesRun runs: those with blocks of them, but for the runbook,
// which make runbook runs, and examples/quickstart/shell, whose test does.
var runPages = []string{"docs/cli.md", "docs/console.md"}

// A scene is what there is when a call is typed: by the call's first words.
type scene func(f *clitest.Fixture) (more []string)

var scenes = map[string]scene{
	"elections":           leads,
	"elections step-down": leads,
	"evict": func(f *clitest.Fixture) []string {
		for _, p := range f.Crowd("charge") {
			go func() {
				<-p.StopRequested().Done()
				_ = p.Release(context.Background())
			}()
		}
		return nil
	},
	"show":  crowd,
	"limit": limited,
	"ls":    crowd,
	"top":   crowd,
	"release": func(f *clitest.Fixture) []string {
		require.Zero(f.T, f.Run("hold", "-N", "test", "production", "--id", "deploy-42", "--for", "30m").Code)
		return nil
	},
	"jobs":         ran,
	"jobs list":    ran,
	"jobs history": ran,
	"jobs pause":   ran,
	"jobs check":   planned,
	"jobs resume": func(f *clitest.Fixture) []string {
		require.NoError(f.T, f.Locker("web-7").Pause(testkit.Context(f.T), "invoices", "not yet", schedlock.BeforeFirstRun()))
		return nil
	},
	"jobs forget": func(f *clitest.Fixture) []string {
		retired := f.Session("web-7")
		l, err := schedlock.New(retired, nil)
		require.NoError(f.T, err)
		_, err = l.Do(testkit.Context(f.T), "invoices-2024", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
		require.NoError(f.T, err)
		require.NoError(f.T, retired.Close(testkit.Context(f.T)))
		return nil
	},
	"jobs trigger": planned,
	"jobs unlock": func(f *clitest.Fixture) []string {
		_, err := f.Locker("web-7").Do(testkit.Context(f.T), "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)), schedlock.AtLeast(time.Hour))
		require.NoError(f.T, err)
		return nil
	},
	"jobs watch": func(f *clitest.Fixture) []string {
		ran(f)
		l := f.Locker("web-9")
		go func() {
			for ctx := testkit.Context(f.T); ctx.Err() == nil; {
				_, _ = l.Do(ctx, "invoices", clitest.Nothing) // until one is seen
			}
		}()
		return nil
	},
	"requests":         orders,
	"requests list":    orders,
	"requests stats":   orders,
	"requests get":     orders,
	"requests delete":  orders,
	"requests resolve": orders,
	"bench":            func(*clitest.Fixture) []string { return []string{"--duration", "20ms"} },
}

// leads has a leader that resigns when it is asked to.
func leads(f *clitest.Fixture) []string {
	el, err := concurrency.NewElection(f.Session("web-7"), "shard-7")
	require.NoError(f.T, err)
	begun := make(chan struct{})
	go func() {
		_ = el.Lead(testkit.Context(f.T), func(ctx context.Context, _ *concurrency.Permit) error {
			select {
			case begun <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return nil
		})
	}()
	<-begun
	return nil
}

func crowd(f *clitest.Fixture) []string {
	f.Crowd("charge")
	return nil
}

// limited has a crowd, and a rate.
func limited(f *clitest.Fixture) []string {
	l, err := concurrency.NewRateLimiter(f.Session("web-7"), "mail", concurrency.Rate{PerSecond: 10, Burst: 1}, nil)
	require.NoError(f.T, err)
	require.NoError(f.T, l.Wait(testkit.Context(f.T))) // stores it
	return crowd(f)
}

// ran has a job that has run.
func ran(f *clitest.Fixture) []string {
	_, err := f.Locker("web-7").Do(testkit.Context(f.T), "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(f.T, err)
	return nil
}

// planned has a process with a job that has run, and its plan.
func planned(f *clitest.Fixture) []string {
	job, err := f.Locker("web-7").Job("invoices", schedlock.Periods(time.Hour), clitest.Nothing)
	require.NoError(f.T, err)
	job.Next(time.Now()) // as a cron library does
	res, err := job.RunContext(testkit.Context(f.T))
	require.NoError(f.T, err)
	require.Equal(f.T, schedlock.Ran, res.Outcome, "there is such a job")
	return nil
}

// orders has requests in each state. The reference on the pages is that of the unknown one.
func orders(f *clitest.Fixture) []string {
	s := f.Orders()
	for r, err := range s.List(testkit.Context(f.T), idempotency.Filter{State: idempotency.Unknown}) {
		require.NoError(f.T, err)
		f.Shows(r.Ref, "c0535e4be2b79ffd/rE6fr...")
		return []string{"--revision", fmt.Sprint(r.Revision)}
	}
	f.T.Fatal("no request is unknown")
	return nil
}

// endless are the verbs that end by a signal alone, after a first line of output.
var endless = []string{"console", "export", "top", "jobs watch"}

// inShell are the verbs that are typed in a shell: they run a command, or read a file.
var inShell = []string{"run", "jobs run", "cron", "man"}

// verbOf returns the first words of a call that are a verb.
func verbOf(words []string) string {
	if len(words) > 2 && slices.Contains([]string{"jobs", "requests", "elections"}, words[1]) && !strings.HasPrefix(words[2], "-") {
		return words[1] + " " + words[2]
	}
	return words[1]
}

// Each call of the command that a page shows in a block does what it is shown for: it ends well, in a namespace in
// which there is what it names.
func TestPagesRun(t *testing.T) {
	t.Parallel()
	var calls []pagecode.Call
	for _, name := range runPages {
		page, err := os.ReadFile("../../../../" + name)
		require.NoError(t, err)
		for _, call := range pagecode.Parse(string(page)).Calls() {
			if call.Words[0] == "etcdkit" && !call.Span && !slices.ContainsFunc(calls, func(c pagecode.Call) bool { return slices.Equal(c.Words, call.Words) }) {
				calls = append(calls, call)
			}
		}
	}
	require.Greater(t, len(calls), 30)
	for _, call := range calls {
		t.Run(strings.Join(call.Words[1:], " "), func(t *testing.T) {
			t.Parallel()
			runCall(clitest.New(t), call.Words)
		})
	}
}

// runCall sets the scene for a call, and runs it.
func runCall(f *clitest.Fixture, words []string) {
	verb, args := verbOf(words), slices.Clone(words[1:])
	var more []string
	if set := scenes[verb]; set != nil {
		more = set(f)
	}
	for i, word := range args {
		if word = f.Real(word); i > 0 && (args[i-1] == "-N" || args[i-1] == "--namespace") {
			word = "test"
		}
		args[i] = word
	}
	switch verb {
	case "requests resolve", "requests delete", "bench":
		if !slices.Contains(args, "--state") { // many at once have no revision
			args = append(args, more...)
		}
	case "console", "export":
		args = append(args, "--listen", "127.0.0.1:0") // the usual port may be in use
	}
	args = append([]string{"--yes"}, args...) // there is no terminal to ask at
	ctx := testkit.Context(f.T)
	switch {
	case slices.Contains(endless, verb):
		until, interrupt := context.WithCancelCause(ctx)
		defer interrupt(nil)
		line, done := f.Service(until, args...)
		require.NotEmpty(f.T, line)
		interrupt(exit.Interrupted{Signal: syscall.SIGINT})
		r := testkit.Got(f.T, done, "it ends")
		require.Contains(f.T, []int{0, 130}, r.Code, r.Err)
	case slices.Contains(inShell, verb):
		code, printed := typed(f, args)
		require.Zero(f.T, code, printed)
	default:
		r := f.RunWith(ctx, args...)
		require.Zero(f.T, r.Code, r.Err)
	}
}

// typed runs the command as a process, in a folder that has the files of the pages.
func typed(f *clitest.Fixture, args []string) (code int, printed string) {
	t := f.T
	dir := t.TempDir()
	for name, text := range map[string]string{
		"report.sh": "#!/bin/sh\necho reported\n", "sweep": "#!/bin/sh\n", "etcdkit.crontab": "CRON_TZ=Europe/Berlin\n# job: backup\n30 2 * * *  /usr/local/bin/backup\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700)) //nolint:gosec // scripts
	}
	for i := range args {
		args[i] = strings.NewReplacer("/etc/etcdkit.crontab", dir+"/etcdkit.crontab", "/usr/local/share/man/man1", dir).Replace(args[i])
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(testkit.Context(t), self, f.Args(args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), clitest.AsCommand+"=1")
	out, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return cmd.ProcessState.ExitCode(), string(out)
}
