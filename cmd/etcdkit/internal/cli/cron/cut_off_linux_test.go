package cron_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/cron"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A655: `etcdkit cron` is stopped during a run. The run has failed, with the stop as the reason, also if the command handles
// SIGTERM and exits with 0. A command that had exited with 0 before is done, also if the stop ends what it has left.
func TestCronIsStoppedDuringARun(t *testing.T) {
	t.Parallel()
	const stopped = "ended, as etcdkit cron was stopped: exit code "
	for name, c := range map[string]struct {
		command string
		says    string // before it is stopped
		state   schedlock.State
		err     string
	}{
		"exits with 0":      {"trap 'exit 0' TERM; touch begun; while :; do sleep 0.1; done", "", schedlock.RunFailed, stopped + "0"},
		"exits with 3":      {"trap 'exit 3' TERM; touch begun; while :; do sleep 0.1; done", "", schedlock.RunFailed, stopped + "3"},
		"does not handle":   {"touch begun; exec sleep 600", "", schedlock.RunFailed, stopped + "143"},
		"has exited before": {"(exec sleep 600 &); touch begun; exit 0", "the command has exited and left sleep", schedlock.RunDone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := clitest.New(t)
			dir := t.TempDir()
			p := cronOf(f, "CRON_TZ=UTC\nHOME="+dir+"\n# job: backup\n0 0 1 1 *  "+c.command+"\n", "--grace", "20s")
			trigger(f, "backup")
			require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil }, testkit.Soon, cron.ReadEvery/20)
			p.Says(c.says)
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
			require.Zero(t, p.Code(), p.Errs)
			h, err := f.Locker("reader").History(testkit.Context(t), "backup")
			require.NoError(t, err)
			require.Equal(t, []any{c.state, c.err}, []any{h[0].State, h[0].Error})
			require.Contains(t, p.Errs.String(), c.err)
		})
	}
}

// A655: systemd stops the service of `etcdkit cron`, and the command has ended by its own SIGTERM before that to `etcdkit cron` has
// an effect.
func TestCronWhoseCommandGotSIGTERM(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	dir := t.TempDir()
	p := cronOf(f, "CRON_TZ=UTC\nHOME="+dir+"\n# job: backup\n0 0 1 1 *  trap 'exit 0' TERM; sleep 0.5; echo $$ > pid; mv pid begun; sleep 600 & wait\n")
	trigger(f, "backup")
	begun := filepath.Join(dir, "begun")
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, testkit.Soon, cron.ReadEvery/20)
	text, err := os.ReadFile(begun)
	require.NoError(t, err)
	command, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	group, err := syscall.Getpgid(command)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-group, syscall.SIGTERM))
	p.Says("ended by SIGTERM: exit code 0")
	h, err := f.Locker("reader").History(testkit.Context(t), "backup")
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunFailed, "ended by SIGTERM: exit code 0"}, []any{h[0].State, h[0].Error})
}

// A656: --at-most ends a command that handles SIGTERM and exits with 0: the run has failed, and so has the call.
func TestJobsRunThatAtMostHasEnded(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	p := f.JobRun("slow", "--every", "1h", "--at-most", "2s", "--grace", "20s", "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
	code, _ := p.All()
	require.Equal(t, exit.Failed, code, p.Errs)
	require.Contains(t, p.Errs.String(), "AtMost of 2s has passed: the command was ended")
	h, err := f.Locker("reader").History(testkit.Context(t), "slow")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunFailed, h[0].State)
}
