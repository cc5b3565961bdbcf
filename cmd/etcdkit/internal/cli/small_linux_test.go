package cli_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
)

// etcdctl removes the spaces between endpoints.
func TestEndpointsAreTrimmed(t *testing.T) {
	f := clitest.New(t)
	t.Setenv("ETCDCTL_ENDPOINTS", "127.0.0.1:1 , "+f.Etcd.Endpoints()[0]+" ")
	cmd := exec.Command(os.Args[0], "ls", "--prefix", f.Prefix) //nolint:noctx // it ends by itself
	cmd.Env = append(os.Environ(), clitest.AsCommand+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// A duration without a unit is refused with an example.
func TestDurationsWithoutAUnit(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	r := f.Run("run", "-N", "test", "x", "--wait", "5", "--", "true")
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, "missing unit in duration \"5\", as in 5s or 1h30m")
}
