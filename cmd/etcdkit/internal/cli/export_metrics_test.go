package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// fetch returns the status and the body of a page.
func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // of this machine
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestExport(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	line, done := f.Service(ctx, "export", "-N", "test", "--listen", "127.0.0.1:0")
	url, found := strings.CutPrefix(line, "metrics at ")
	require.True(t, found, line)
	const series = `etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="charge",etcdkit_namespace="test"} 2`
	require.Eventually(t, func() bool {
		status, page := fetch(t, url)
		return status == http.StatusOK && strings.Contains(page, series)
	}, testkit.Soon, 10*time.Millisecond)
	status, page := fetch(t, strings.Replace(url, "/metrics", "/healthz", 1))
	require.Equal(t, http.StatusOK, status, page)

	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	f.Shows(host, "127.0.0.1:9464")
	fmt.Fprintf(&f.Script, "$ etcdkit export -N test\n%s\n", line)
	line, asJSON := f.Service(ctx, "export", "-N", "test", "--listen", "127.0.0.1:0", "-o", "json")
	f.Shows(regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line), "127.0.0.1:9465")
	fmt.Fprintf(&f.Script, "$ etcdkit export -N test --listen 127.0.0.1:9465 -o json\n%s\n", line)
	f.Shell("export -N test --listen 127.0.0.1:9464")
	f.Shell("export")
	f.Shell("export -N test --max-names -1")
	cancel(exit.Interrupted{Signal: syscall.SIGTERM})
	for _, ended := range []<-chan clitest.Result{done, asJSON} {
		r := testkit.Got(t, ended, "it ends")
		require.Zero(t, r.Code, "that is how a service is ended: %s", r.Err)
	}
	f.Golden("export")
}

// The exporter of a namespace in which etcd has nothing, as of a misspelled name, says so, beside metrics that look healthy
// (A308 in internal/proof/tested-failures.md).
func TestExportOfNothing(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	for name, says := range map[string]bool{"tset": true, "test": false} {
		ctx, cancel := context.WithCancelCause(testkit.Context(t))
		line, done := f.Service(ctx, "export", "-N", name, "--listen", "127.0.0.1:0")
		require.Eventually(t, func() bool {
			status, _ := fetch(t, strings.Replace(strings.TrimPrefix(line, "metrics at "), "/metrics", "/healthz", 1))
			return status == http.StatusOK
		}, testkit.Soon, 10*time.Millisecond)
		cancel(exit.Interrupted{Signal: syscall.SIGTERM})
		r := testkit.Got(t, done, "it ends")
		require.Zero(t, r.Code, r.Err)
		require.Equal(t, says, strings.Contains(r.Err, "etcd has nothing in namespace tset, which is published from its first key on"), r.Err)
	}
}
