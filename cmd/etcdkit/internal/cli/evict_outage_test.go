package cli_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// If etcd does not answer at its end, evict does not claim that the holder still holds.
func TestEvictThroughAnOutage(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("it kills the server")
	}
	ctx := testkit.Context(t)
	sm, err := concurrency.NewSemaphore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "charge", 2, nil)
	require.NoError(t, err)
	p, err := sm.Acquire(ctx)
	require.NoError(t, err)
	crashed := make(chan error, 1)
	go func() {
		<-p.StopRequested().Done()
		crashed <- etcd.Crash(0)
	}()
	var out, errs bytes.Buffer
	args := []string{"evict", "-N", "test", "charge", strconv.FormatInt(p.Token(), 10), "--yes", "--wait", "1s", "--endpoints", strings.Join(etcd.Endpoints(), ","), "--command-timeout", "500ms"}
	require.Equal(t, exit.Unreachable, cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}), errs.String())
	require.NoError(t, testkit.Got(t, crashed, "the holder is asked"))
	require.NotContains(t, errs.String(), "still holds")
}
