package cron_test

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
)

// A659: `jobs run` is killed more than a minute after its tick, and a supervisor starts it again on the same machine, before the
// lease of the one that was killed has ended: it runs the command again if --retries permits that, and reports the loss otherwise.
func TestJobsRunIsRepeatedOnItsMachine(t *testing.T) {
	t.Parallel()
	for retries, want := range []string{"was lost, and is not repeated: --retries 0", ""} {
		t.Run(strconv.Itoa(retries), func(t *testing.T) {
			t.Parallel()
			f := clitest.New(t)
			args := []string{"backup", "--every", "24h", "--ttl", "6s", "--grace", "100ms", "--retries", strconv.Itoa(retries), "--"}
			dies := f.JobRun(append(args, "sh", "-c", "echo started; sleep 600")...)
			require.Equal(t, "started", dies.Line())
			require.NoError(t, syscall.Kill(dies.Cmd.Process.Pid, syscall.SIGKILL))
			again := f.Prepare(nil, append(args, "sh", "-c", "echo again $ETCDKIT_ATTEMPT")...)
			again.Cmd.Args = append([]string{again.Cmd.Args[0], "jobs"}, again.Cmd.Args[1:]...)
			again.Cmd.Env = append(again.Cmd.Env, clockAhead+"=2m")
			again.Begin()
			code, out := again.All()
			if want != "" {
				require.Equal(t, exit.NotAcquired, code, again.Errs)
				require.Contains(t, again.Errs.String(), want)
				require.Empty(t, out)
				return
			}
			require.Zero(t, code, again.Errs)
			require.Equal(t, "again 2\n", out)
		})
	}
}

// A660: a supervisor repeats a call whose command has failed: the repetition runs nothing, and does not exit with 0, as a Job of
// Kubernetes would then be complete.
func TestJobsRunAfterAFailure(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for name, schedule := range map[string]string{"by-every": "--every=24h", "by-cron": "--cron=0 0 1 1 *"} {
		line := []string{name, schedule, "--", "sh", "-c", "echo ran; exit 3"}
		code, out := f.JobRun(line...).All()
		require.Equal(t, 3, code)
		require.Equal(t, "ran\n", out)
		p := f.JobRun(line...)
		code, out = p.All()
		require.Equal(t, exit.NotAcquired, code, p.Errs)
		require.Empty(t, out)
		require.Regexp(t, `^etcdkit jobs run: job `+name+`: the run of tick \S+ by etcdkit jobs run by \S+, process \d+ has failed, and is not repeated: exit code 3`,
			p.Errs.String())
	}
}
