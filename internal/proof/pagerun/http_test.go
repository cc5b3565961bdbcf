package pagerun

import (
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var (
	seconds = regexp.MustCompile(`(?m)^Retry-After: \d+`)
	dated   = regexp.MustCompile(`(?m)^(?:Date|Content-Length|X-Content-Type-Options): .*\n`)
)

// The page of limits shows the answer that a client gets whose own limit is reached, but for what any server adds.
func TestRefusal(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	sess, _ := f.Session(nil)
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 5, nil)
	require.NoError(t, err)
	limited, err := limithttp.Middleware(lim, limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }})
	require.NoError(t, err)
	for range 5 {
		_, err := lim.Key("acme").Acquire(testkit.Context(t))
		require.NoError(t, err)
	}
	server := httptest.NewServer(limited(http.NotFoundHandler()))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	printed, err := httputil.DumpResponse(resp, true)
	require.NoError(t, err)
	plain := func(text string) string { // names of fields have no case
		head, body, _ := strings.Cut(strings.ReplaceAll(seconds.ReplaceAllString(text, "Retry-After: 1"), "\r", ""), "\n\n")
		return dated.ReplaceAllString(head+"\n", "") + strings.Join(strings.Fields(body), "")
	}
	lines := func(text string) []string { return strings.Split(strings.ToLower(plain(text)), "\n") }
	require.ElementsMatch(t, lines(block(t, page(t, "docs/limits.md"), "HTTP/1.1 429").Text), lines(string(printed)))
}

// The page of observability has a line that finds what is held and waited for.
func TestMetricsByCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	etcd := embedtest.Shared(t)
	f := testkit.On(t, etcd)
	sess, c := f.Session(nil)
	sem, err := concurrency.NewSemaphore(sess, "render", 3, nil)
	require.NoError(t, err)
	_, err = sem.Acquire(testkit.Context(t))
	require.NoError(t, err)
	exp, err := exporter.New(c.Client, "test", &exporter.Options{Prefix: f.Root})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(exp))
	go func() { _ = exp.Run(testkit.Context(t)) }()
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	var line string
	for text := range strings.Lines(block(t, page(t, "docs/observability.md"), "make demo").Text) {
		if strings.HasPrefix(text, "curl ") {
			line = strings.Replace(strings.TrimSpace(text), "localhost:9464", strings.TrimPrefix(server.URL, "http://"), 1)
		}
	}
	require.NotEmpty(t, line)
	held := regexp.MustCompile(`(?m)^etcdkit_held\{[^}]*etcdkit_name="render"[^}]*\} 1$`)
	require.Eventually(t, func() bool {
		out, _ := exec.CommandContext(testkit.Context(t), "bash", "-c", line).Output()
		return held.Match(out)
	}, testkit.Soon, 50*time.Millisecond, "%s", line)
}

// config is etcd's with its flags. It is made before any etcd starts: AddFlags writes a variable of its package.
var config, flags = func() (*embed.Config, *flag.FlagSet) {
	c, set := embed.NewConfig(), flag.NewFlagSet("etcd", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	c.AddFlags(set)
	return c, set
}()

// etcd takes the flags of the page for operators.
func TestFlagsOfEtcd(t *testing.T) {
	t.Parallel()
	c := config
	given := strings.Fields(block(t, page(t, "docs/operations.md"), "--auto-compaction-mode").Text)
	require.NoError(t, flags.Parse(given))
	c.Dir = t.TempDir()
	require.NoError(t, c.Validate())
	require.Equal(t, "periodic", c.AutoCompactionMode)
	require.Equal(t, "10m", c.AutoCompactionRetention)
	require.Error(t, flags.Parse([]string{"--auto-compaction-moda=periodic"}))
}
