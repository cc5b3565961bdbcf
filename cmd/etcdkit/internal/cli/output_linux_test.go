package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// printing are command lines that print a result, by their verbs. Each is executed once, so it may change something.
func printing(t *testing.T, f *clitest.Fixture) map[string]string {
	t.Helper()
	ctx := testkit.Context(t)
	crontab := t.TempDir() + "/crontab"
	require.NoError(t, os.WriteFile(crontab, []byte("CRON_TZ=UTC\n# job: x\n0 0 * * * true\n"), 0o600))
	held := f.Crowd("charge")
	s := f.Session("web-7")
	el, err := concurrency.NewElection(s, "shard")
	require.NoError(t, err)
	f.Permit(el.Campaign(ctx))
	require.Zero(t, f.Run("hold", "-N", "test", "x", "--id", "a", "--for", "30m").Code)
	l := f.Locker("web-7")
	for _, name := range []string{"invoices", "backup"} {
		_, err = l.Do(ctx, name, clitest.Nothing)
		require.NoError(t, err)
	}
	retired := f.Session("web-8")
	of, err := schedlock.New(retired, nil)
	require.NoError(t, err)
	_, err = of.Do(ctx, "retired", clitest.Nothing)
	require.NoError(t, err)
	require.NoError(t, retired.Close(ctx))
	job, err := l.Job("live", schedlock.Periods(24*time.Hour), clitest.Nothing)
	require.NoError(t, err)
	job.Next(time.Now()) // as a cron library does
	require.Eventually(t, func() bool { _, err := l.Status(ctx, "live"); return err == nil }, testkit.Soon, 5*time.Millisecond, "its plan is stored")
	f.Active(l, "import")
	run, err := l.Status(ctx, "import")
	require.NoError(t, err)
	go func() { // jobs watch prints what begins after it
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			_, _ = l.Do(ctx, "sweep", clitest.Nothing)
		}
	}()
	store := f.Orders()
	record := func(id string) string {
		r, _, err := store.Get(ctx, store.Ref(clitest.Order(id)))
		require.NoError(t, err)
		return fmt.Sprintf("orders %s --revision %d --yes", r.Ref, r.Revision)
	}
	return map[string]string{
		"ls": "", "show": "charge", "top": "", "limit": "charge", "changes": "", "elections": "", "elections step-down": "shard --yes",
		"evict": fmt.Sprintf("charge %d --yes --force", held[0].Token()),
		"hold":  "y --id b --for 30m", "release": "x --id a", "cron": "--check " + crontab,
		"jobs": "", "jobs list": "", "jobs history": "invoices", "jobs check": "invoices --within 24h", "jobs watch": "sweep", "jobs pause": "invoices --reason x",
		"jobs resume": "invoices", "jobs unlock": fmt.Sprintf("import --token %d --yes --reason x", run.Token),
		"jobs trigger": "live", "jobs forget": "retired --yes", "jobs run": "backup --every 24h --verbose -- true",
		"requests": "", "requests list": "orders", "requests stats": "orders", "requests get": "orders " + string(store.Ref(clitest.Order("1"))),
		"requests resolve": record("5") + " --not-done", "requests delete": record("2"),
		"console": "", "export": "--listen 127.0.0.1:0", "doctor": "--slow 1m", "bench": "--yes --duration 10ms --clients 1",
		"conformance": "--list", "man": t.TempDir(), "version": "", "completion bash": "", "help": "",
	}
}

// A result that cannot be written, to a device that is full or a pipe that no process reads, is an error of each verb: the
// caller of `etcdkit limit x >file` would take an empty file for the answer.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	read, unread, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	defer func() { _ = unread.Close() }()
	for reason, out := range map[string]*os.File{"no space left on device": full, "broken pipe": unread} {
		t.Run(reason, func(t *testing.T) {
			f := clitest.New(t)
			ctx, cancel := context.WithCancel(testkit.Context(t))
			defer cancel()
			lines := printing(t, f)
			for _, path := range executed(cli.Tree()) {
				args, listed := lines[path]
				require.True(t, listed || path == "run", "what does %q print?", path) // run itself prints nothing
				if !listed {
					continue
				}
				line := append(strings.Fields(path), strings.Fields(args)...)
				if !strings.HasPrefix(path, "completion") && path != "help" {
					line = f.Args(append([]string{"-N", "test"}, line...)...)
				}
				var errs bytes.Buffer
				code := cli.Execute(ctx, line, verb.Streams{In: strings.NewReader(""), Out: out, Err: &errs})
				if out == unread && (path == "hold" || path == "jobs watch") { // they notice that their reader has gone before they print
					require.NotZero(t, code, path)
					continue
				}
				require.Equal(t, exit.Failed, code, "%s: %s", path, &errs)
				require.Contains(t, errs.String(), reason, path)
			}
		})
	}
}

// executed are the paths of the verbs that do something themselves, and help.
func executed(cmd *cobra.Command) (paths []string) {
	for _, c := range cli.VerbsOf(cmd) {
		path := strings.TrimPrefix(c.CommandPath(), "etcdkit ")
		if c.Name() == "completion" {
			paths = append(paths, "completion bash") // of cobra, as its other shells
			continue
		}
		paths = append(paths, path)
		paths = append(paths, executed(c)...)
	}
	if !cmd.HasParent() {
		paths = append(paths, "help")
	}
	return paths
}
