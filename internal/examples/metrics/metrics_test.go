package metrics_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
	"github.com/etcdkit/etcdkit/observe"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// hold holds a permit of a semaphore in a namespace until the end of the test.
func hold(t *testing.T, etcd *embedtest.Cluster, namespace, name string) {
	t.Helper()
	sess, err := concurrency.NewSession(t.Context(), etcd.Client(), namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sess.Close(context.WithoutCancel(t.Context())) })
	sem, err := concurrency.NewSemaphore(sess, name, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := sem.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Release(context.WithoutCancel(t.Context())) })
}

// A scrape shows what is held in each namespace.
func TestScrape(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	if etcd.External() {
		t.Skip("other tests may write to these namespaces")
	}
	scraper := progtest.Scrape(t, io.Discard,
		`etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="render",etcdkit_namespace="one"\} 1`,
		`etcdkit_held{etcdkit_kind="semaphore",etcdkit_name="render",etcdkit_namespace="two"\} 1`,
		`etcdkit_limit{etcdkit_kind="semaphore",etcdkit_name="render",etcdkit_namespace="two"\} 3`)
	s, err := metrics.Listen("127.0.0.1:0", scraper)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Publish(cluster.At(etcd.Endpoints()...), "one", "two"); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(cluster.At(etcd.Endpoints()...), "two"); err == nil || !strings.Contains(err.Error(), `"two"`) {
		t.Errorf("a namespace was published twice: %v", err)
	}
	hold(t, etcd, "one", "render")
	hold(t, etcd, "two", "render")
	select {
	case <-scraper.Seen:
	case <-time.After(time.Minute): // Scrape reports what is missing
	}
	s.Close()
	s.Close() // nothing is left to stop
}

// A scrape shows what processes report, each with its name: simulated ones, and child processes. One that does not
// answer, or has left, is left out.
func TestProcesses(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Shared(t)
	reported := func(instance string) string {
		return `etcdkit_acquire_duration_seconds_count\{.*etcdkit_name="render",.*instance="` + instance + `"\} 1`
	}
	scraper := progtest.Scrape(t, io.Discard, reported("web-1"), reported("web-2"), reported("child"))
	s, err := metrics.Listen("127.0.0.1:0", scraper)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hold := func(hooks []observe.Hooks, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		sess, err := concurrency.NewSession(t.Context(), etcd.Client(), "processes", &concurrency.SessionOptions{Prefix: etcd.Prefix(t), Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sess.Close(context.WithoutCancel(t.Context())) })
		sem, err := concurrency.NewSemaphore(sess, "render", 3, nil)
		if err == nil {
			err = sem.Do(t.Context(), func(context.Context, *concurrency.Permit) error { return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := metrics.In(t.Context(), s)
	hold(metrics.Hooks(ctx, "web-1"))
	hold(metrics.Hooks(ctx, "web-2"))
	silent, leave, err := metrics.Join(s.Children(), "gone")
	leave()
	hold(silent, err)
	hooks, leave, err := metrics.Join(s.Children(), "child")
	hold(hooks, err)
	defer leave()
	select {
	case <-scraper.Seen:
	case <-time.After(time.Minute): // Scrape reports what is missing
	}
	if _, _, err := metrics.Join(s.Children()+"x", "child"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a process without the token has joined: %v", err)
	}
}

// Without the flag there are no hooks.
func TestProcessesOff(t *testing.T) {
	t.Parallel()
	s, err := metrics.Listen("", io.Discard)
	if err != nil || s.Children() != "" {
		t.Fatal(s.Children(), err)
	}
	hooks, err := metrics.Hooks(metrics.In(t.Context(), s), "web-1")
	joined, leave, failed := metrics.Join("", "child")
	leave()
	if len(hooks)+len(joined) > 0 || err != nil || failed != nil {
		t.Error(hooks, joined, err, failed)
	}
}

// An address that is in use, and what is no address, are refused with the name of the flag.
func TestAddressIsRefused(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for _, addr := range []string{lis.Addr().String(), "9464", "127.0.0.1:99999"} {
		if s, err := metrics.Listen(addr, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "-metrics "+addr+": ") {
			t.Errorf("%q: %v, %v", addr, s, err)
		}
	}
}

// Without an address nothing is served, and no etcd is needed.
func TestOff(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s, err := metrics.Listen("", &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(cluster.At("no endpoint"), "one"); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, &out)
	}
	s.Close()
}
