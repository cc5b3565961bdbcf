package cron_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// etcd is away when cron calls two machines: they wait for it, and one of them runs the command. Each call ended after five seconds, with
// 69, and cron makes no other one: an outage of seconds cost a night (A445 in internal/proof/tested-failures.md).
func TestJobsRunWaitsForEtcd(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Etcd = embedtest.Start(t, nil)
	file := filepath.Join(t.TempDir(), "runs")
	require.NoError(t, f.Etcd.Crash(0))
	line := []string{"backup", "--command-timeout", "300ms", "--cron", "0 0 * * *", "--", "sh", "-c", "echo run >> " + file}
	var both []*clitest.Program
	for range 2 {
		p := f.JobRun(line...)
		p.Says("this call waits for it, until ")
		both = append(both, p)
	}
	p := f.JobRun(append([]string{"--wait-for-etcd", "0s"}, line...)...)
	code, _ := p.All()
	require.Equal(t, exit.Unreachable, code, p.Errs)
	require.NoError(t, f.Etcd.Restart(testkit.Context(t), 0))
	for _, p := range both {
		code, out := p.All()
		require.Zero(t, code, p.Errs)
		require.Empty(t, out)
		require.Contains(t, p.Errs.String(), "etcd answers again, after ")
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "run\n", string(text))
}

// A408: etcd is out of space when cron calls. The call is repeated, and the command runs when an operator has made space. It
// ended at once, and the night was left out.
func TestJobsRunWaitsForSpace(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Etcd = embedtest.Start(t, nil)
	require.NoError(t, f.Etcd.SetNoSpace(testkit.Context(t), true))
	line := []string{"backup", "--cron", "0 0 * * *", "--", "echo", "run"}
	p := f.JobRun(line...)
	p.Says("etcd refuses this call, which is repeated until ")
	at := f.JobRun(append([]string{"--wait-for-etcd", "0s"}, line...)...)
	code, _ := at.All()
	require.Equal(t, exit.Failed, code, at.Errs)
	require.Contains(t, at.Errs.String(), "out of space")
	require.NoError(t, f.Etcd.SetNoSpace(testkit.Context(t), false))
	code, out := p.All()
	require.Zero(t, code, p.Errs)
	require.Equal(t, "run\n", out)
}
