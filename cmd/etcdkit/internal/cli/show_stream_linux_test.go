package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A stream ends when its reader has gone, though nothing changes.
func TestStreamsEndWithTheirReader(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "show", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix, "-N", "test", "mutex/quiet", "--watch", "-o", "json")
	cmd.Env = append(os.Environ(), clitest.AsCommand+"=1")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = write
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, write.Close())
	_, err = read.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, read.Close())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	testkit.Closed(t, ended, "the stream has ended")
	require.Equal(t, 141, cmd.ProcessState.ExitCode())
}
