package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// service executes a command that lasts until ctx ends, and returns its first line.
func (f *fixture) service(ctx context.Context, args ...string) (line string, done <-chan result) {
	f.t.Helper()
	read, write := io.Pipe()
	ended := make(chan result, 1)
	go func() {
		var errs strings.Builder
		args := append([]string{"--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}, args...)
		code := execute(ctx, args, Streams{In: strings.NewReader(""), Out: write, Err: &errs})
		_ = write.Close()
		ended <- result{code: code, err: errs.String()}
	}()
	lines := bufio.NewReader(read)
	line, err := lines.ReadString('\n')
	require.NoError(f.t, err)
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return strings.TrimSuffix(line, "\n"), ended
}

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
	f := newFixture(t)
	f.crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	line, done := f.service(ctx, "export", "-N", "test", "--listen", "127.0.0.1:0")
	url, found := strings.CutPrefix(line, "metrics at ")
	require.True(t, found, line)
	const series = `etcdkit_held{kind="semaphore",name="charge",namespace="test"} 2`
	require.Eventually(t, func() bool {
		status, page := fetch(t, url)
		return status == http.StatusOK && strings.Contains(page, series)
	}, testkit.Soon, 10*time.Millisecond)
	status, page := fetch(t, strings.Replace(url, "/metrics", "/healthz", 1))
	require.Equal(t, http.StatusOK, status, page)

	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	f.shows(host, "127.0.0.1:9464")
	fmt.Fprintf(&f.script, "$ etcdkit export -N test\n%s\n", line)
	line, asJSON := f.service(ctx, "export", "-N", "test", "--listen", "127.0.0.1:0", "-o", "json")
	f.shows(regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line), "127.0.0.1:9465")
	fmt.Fprintf(&f.script, "$ etcdkit export -N test --listen 127.0.0.1:9465 -o json\n%s\n", line)
	f.shell("export -N test --listen 127.0.0.1:9464")
	f.shell("export")
	f.shell("export -N test --max-names -1")
	cancel(interrupted{syscall.SIGTERM})
	for _, ended := range []<-chan result{done, asJSON} {
		r := testkit.Got(t, ended, "it ends")
		require.Zero(t, r.code, "that is how a service is ended: %s", r.err)
	}
	f.golden("export")
}

// A probe of health fails while the exporter says that its state is old, or says nothing.
func TestExportHealth(t *testing.T) {
	for name, c := range map[string]struct {
		up   []float64
		want int
	}{"up": {[]float64{1}, 200}, "not up": {[]float64{0}, 503}, "nothing": {nil, 503}} {
		reg := prometheus.NewRegistry()
		for _, v := range c.up {
			g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcdkit_exporter_up"})
			g.Set(v)
			reg.MustRegister(g)
		}
		w := httptest.NewRecorder()
		pages(reg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		require.Equal(t, c.want, w.Code, name)
	}
}
