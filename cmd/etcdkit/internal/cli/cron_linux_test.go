package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// cronOf starts `etcdkit cron` with a crontab, and waits until it has begun.
func (f *fixture) cronOf(text string, args ...string) *program {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "crontab")
	require.NoError(f.t, os.WriteFile(file, []byte(text), 0o600))
	p := f.prepare(nil, append(args, file)...)
	p.cmd.Args[1] = "cron"
	p.begin()
	p.says("'etcdkit jobs -N test' shows them")
	return p
}

// plan returns what etcd has of the schedule of a job.
func (f *fixture) plan(name string) (record.Plan, bool) {
	f.t.Helper()
	space, err := keyspace.New(f.prefix, "test")
	require.NoError(f.t, err)
	resp, err := f.etcd.Client().Get(testkit.Context(f.t), space.Job(name).Plan())
	require.NoError(f.t, err)
	if len(resp.Kvs) == 0 {
		return record.Plan{}, false
	}
	return record.DecodePlan(resp.Kvs[0].Value)
}

// trigger starts a job of a crontab that has never run.
func (f *fixture) trigger(name string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { _, ok := f.plan(name); return ok }, testkit.Soon, readEvery/20)
	r := f.run("jobs", "trigger", "-N", "test", name)
	require.Zero(f.t, r.code, r.err)
}

// Two machines run one file: a triggered line runs once, with the variables, the shell, the directory and the input of
// the file; the history and the messages have its end.
func TestCronRunsALineOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	home := t.TempDir()
	text := "CRON_TZ=UTC\nSHELL=/bin/bash\nHOME=" + home + "\nA=first\nA=second\n# job: backup\n0 0 1 1 *  echo \"$A $ETCDKIT_KIND $ETCDKIT_NAME $ETCDKIT_ATTEMPT ${BASH_VERSION:+bash}\" >> out; cat >> out%x\\%%y\n" +
		"# job: fails\n0 0 1 1 *  exit 3\n"
	one, two := f.cronOf(text), f.cronOf(text)
	require.Eventually(t, func() bool {
		plan, ok := f.plan("backup")
		return ok && plan.Text == "0 0 1 1 *" && plan.Zone == "UTC"
	}, testkit.Soon, readEvery/20, "text and zone are stored")
	f.trigger("backup")
	require.Eventually(t, func() bool {
		return strings.Count(one.errs.String()+two.errs.String(), ": done, took") == 1
	}, testkit.Soon, readEvery/20, "%s %s", one.errs, two.errs)
	out, err := os.ReadFile(filepath.Join(home, "out"))
	require.NoError(t, err)
	require.Equal(t, "second job backup 1 bash\nx%\ny\n", string(out))

	f.trigger("fails")
	require.Eventually(t, func() bool {
		return strings.Contains(one.errs.String()+two.errs.String(), "exit code 3")
	}, testkit.Soon, readEvery/20)
	h, err := f.locker("reader").History(testkit.Context(t), "fails")
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunFailed, "exit code 3"}, []any{h[0].State, h[0].Error})

	for _, p := range []*program{one, two} {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.Zero(t, p.code(), p.errs)
	}
}

// The only machine dies during a run. The verbs of an operator leave the loss to the next process that uses the job, which
// says it.
func TestCronSaysALostRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := "CRON_TZ=UTC\n# job: long\n0 0 1 1 *  sleep 600\n"
	dies := f.cronOf(text, "--ttl", "6s", "--grace", "100ms")
	f.trigger("long")
	require.NoError(t, dies.cmd.Process.Kill())
	l := f.locker("reader")
	require.Eventually(t, func() bool {
		h, err := l.History(testkit.Context(t), "long")
		return err == nil && len(h) == 1 && h[0].State == schedlock.RunLost
	}, testkit.Soon, readEvery/20)
	marked := func() bool {
		return strings.Contains(strings.Join(testkit.Keys(t, f.etcd, f.prefix, ""), "\n"), "job/long/lost")
	}
	for _, verb := range []string{"jobs", "jobs history long", "jobs pause long --reason x", "jobs trigger long --wait 100ms", "jobs resume long", "doctor"} {
		_ = f.run(append(strings.Fields(verb), "-N", "test")...)
		require.False(t, marked(), verb)
	}
	next := f.cronOf(text)
	next.says("etcdkit cron: long: tick ")
	next.says(", attempt 1, was lost: its process died")
	require.Eventually(t, marked, testkit.Soon, readEvery/20)
	require.Equal(t, 1, strings.Count(next.errs.String(), "was lost"), next.errs)
}

// The commands end when their machine's process ends: SIGTERM first where it is asked to, at once where it is killed.
func TestCronEndsItsCommands(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]syscall.Signal{"terminated": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			dir := t.TempDir()
			fifo := filepath.Join(dir, "alive") // open as long as a process of the command lives
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			alive, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
			require.NoError(t, err)
			defer func() { _ = syscall.Close(alive) }()
			p := f.cronOf("CRON_TZ=UTC\n# job: long\n0 0 1 1 *  exec 7>"+fifo+"; trap 'echo ended > "+dir+"/ended; exit 1' TERM; (setsid sleep 600 &); echo begun > "+dir+"/begun; while :; do sleep 0.1; done\n", "--grace", "5s")
			f.trigger("long")
			require.Eventually(t, func() bool { _, err := os.Stat(dir + "/begun"); return err == nil }, testkit.Soon, readEvery/20)
			require.NoError(t, p.cmd.Process.Signal(by))
			if code := p.code(); by == syscall.SIGTERM {
				require.Zero(t, code, p.errs)
			}
			require.Eventually(t, func() bool {
				n, err := syscall.Read(alive, make([]byte, 1))
				return n == 0 && err == nil
			}, testkit.Soon, readEvery/20, "a process of the command lives")
			_, err = os.Stat(dir + "/ended")
			require.NoError(t, err, "it got SIGTERM")
		})
	}
}
