package cron_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/cron"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// cronOf starts `etcdkit cron` with a crontab, and waits until it has begun.
func cronOf(f *clitest.Fixture, text string, args ...string) *clitest.Program {
	f.T.Helper()
	file := filepath.Join(f.T.TempDir(), "crontab")
	require.NoError(f.T, os.WriteFile(file, []byte(text), 0o600))
	p := f.Prepare(nil, append(args, file)...)
	p.Cmd.Args[1] = "cron"
	p.Begin()
	p.Says("'etcdkit jobs -N test' shows them")
	return p
}

// plan returns what etcd has of the schedule of a job.
func plan(f *clitest.Fixture, name string) (record.Plan, bool) {
	f.T.Helper()
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(f.T, err)
	resp, err := f.Etcd.Client().Get(testkit.Context(f.T), space.Job(name).Plan())
	require.NoError(f.T, err)
	if len(resp.Kvs) == 0 {
		return record.Plan{}, false
	}
	return record.DecodePlan(resp.Kvs[0].Value)
}

// trigger starts a job of a crontab that has never run.
func trigger(f *clitest.Fixture, name string) {
	f.T.Helper()
	require.Eventually(f.T, func() bool { _, ok := plan(f, name); return ok }, testkit.Soon, cron.ReadEvery/20)
	r := f.Run("jobs", "trigger", "-N", "test", name)
	require.Zero(f.T, r.Code, r.Err)
}

// Two machines run one file: a triggered line runs once, with the variables, the shell, the directory and the input of
// the file; the history and the messages have its end.
func TestCronRunsALineOnce(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	home := t.TempDir()
	text := "CRON_TZ=UTC\nSHELL=/bin/bash\nHOME=" + home + "\nA=first\nA=second\n# job: backup\n0 0 1 1 *  echo \"$A $ETCDKIT_KIND $ETCDKIT_NAME $ETCDKIT_ATTEMPT ${BASH_VERSION:+bash}\" >> out; cat >> out%x\\%%y\n" +
		"# job: fails\n0 0 1 1 *  exit 3\n"
	one, two := cronOf(f, text), cronOf(f, text)
	require.Eventually(t, func() bool {
		plan, ok := plan(f, "backup")
		return ok && plan.Text == "0 0 1 1 *" && plan.Zone == "UTC"
	}, testkit.Soon, cron.ReadEvery/20, "text and zone are stored")
	trigger(f, "backup")
	require.Eventually(t, func() bool {
		return strings.Count(one.Errs.String()+two.Errs.String(), ": done, took") == 1
	}, testkit.Soon, cron.ReadEvery/20, "%s %s", one.Errs, two.Errs)
	out, err := os.ReadFile(filepath.Join(home, "out"))
	require.NoError(t, err)
	require.Equal(t, "second job backup 1 bash\nx%\ny\n", string(out))

	trigger(f, "fails")
	require.Eventually(t, func() bool {
		return strings.Contains(one.Errs.String()+two.Errs.String(), "exit code 3")
	}, testkit.Soon, cron.ReadEvery/20)
	h, err := f.Locker("reader").History(testkit.Context(t), "fails")
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunFailed, "exit code 3"}, []any{h[0].State, h[0].Error})

	for _, p := range []*clitest.Program{one, two} {
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
		require.Zero(t, p.Code(), p.Errs)
	}
}

// The only machine dies during a run. The verbs of an operator leave the loss to the next process that uses the job, which
// says it.
func TestCronSaysALostRun(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	text := "CRON_TZ=UTC\n# job: long\n0 0 1 1 *  sleep 600\n"
	dies := cronOf(f, text, "--ttl", "6s", "--grace", "100ms")
	trigger(f, "long")
	require.NoError(t, dies.Cmd.Process.Kill())
	l := f.Locker("reader")
	require.Eventually(t, func() bool {
		h, err := l.History(testkit.Context(t), "long")
		return err == nil && len(h) == 1 && h[0].State == schedlock.RunLost
	}, testkit.Soon, cron.ReadEvery/20)
	marked := func() bool {
		return strings.Contains(strings.Join(testkit.Keys(t, f.Etcd, f.Prefix, ""), "\n"), "job/long/reported-loss")
	}
	for _, verb := range []string{"jobs", "jobs history long", "jobs pause long --reason x", "jobs trigger long --wait 100ms", "jobs resume long", "doctor"} {
		_ = f.Run(append(strings.Fields(verb), "-N", "test")...)
		require.False(t, marked(), verb)
	}
	next := cronOf(f, text)
	next.Says("etcdkit cron: long: tick ")
	next.Says(", attempt 1, was lost: its process died")
	require.Eventually(t, marked, testkit.Soon, cron.ReadEvery/20)
	require.Equal(t, 1, strings.Count(next.Errs.String(), "was lost"), next.Errs)
}

// The commands end when their machine's process ends: SIGTERM first where it is asked to, at once where it is killed.
func TestCronEndsItsCommands(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]syscall.Signal{"terminated": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.New(t)
			dir := t.TempDir()
			fifo := filepath.Join(dir, "alive") // open as long as a process of the command lives
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			alive, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
			require.NoError(t, err)
			defer func() { _ = syscall.Close(alive) }()
			p := cronOf(f, "CRON_TZ=UTC\n# job: long\n0 0 1 1 *  exec 7>"+fifo+"; trap 'echo ended > "+dir+"/ended; exit 1' TERM; (setsid sleep 600 &); echo begun > "+dir+"/begun; while :; do sleep 0.1; done\n", "--grace", "5s", "--ttl", "10m") // its deadline, which ends it in any case, comes later
			trigger(f, "long")
			require.Eventually(t, func() bool { _, err := os.Stat(dir + "/begun"); return err == nil }, testkit.Soon, cron.ReadEvery/20)
			require.NoError(t, p.Cmd.Process.Signal(by))
			if code := p.Code(); by == syscall.SIGTERM {
				require.Zero(t, code, p.Errs)
			}
			require.Eventually(t, func() bool {
				n, err := syscall.Read(alive, make([]byte, 1))
				return n == 0 && err == nil
			}, testkit.Soon, cron.ReadEvery/20, "a process of the command lives")
			_, err = os.Stat(dir + "/ended")
			require.NoError(t, err, "it got SIGTERM")
		})
	}
}

// SIGTERM is how it ends, also while etcd does not answer: a service manager counts no failure.
func TestCronIsTerminatedDuringAnOutage(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	f := &clitest.Fixture{T: t, Etcd: etcd, Prefix: "/etcdkit"}
	p := cronOf(f, "CRON_TZ=UTC\n# job: backup\n0 0 1 1 *  true\n")
	require.NoError(t, etcd.Stop(0))
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.Code(), p.Errs)
	require.Contains(t, p.Errs.String(), "is left to expire", "it says what it could not end")
}
