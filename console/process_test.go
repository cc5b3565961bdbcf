package console_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The page of a process has all that ends with it, its lease as etcdctl writes it, and what etcd knows of its renewals.
// The lists of sessions and of requests lead to it.
func TestProcess(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	ctx := testkit.Context(t)
	sess := s.session("web-7")
	sm, err := concurrency.NewSemaphore(sess, "charge", 1, nil)
	require.NoError(t, err)
	held := s.acquire(sm, concurrency.Note("order 12"))
	s.wait(sm, 1, concurrency.Note("order 13"))
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	s.acquire(lim.Key("acme"))
	l, err := schedlock.New(sess, nil)
	require.NoError(t, err)
	job, err := l.Job("invoices", schedlock.Periods(time.Hour), func(context.Context, *schedlock.Run) error { return nil })
	require.NoError(t, err)
	job.Next(time.Now())
	runs, end := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := l.Do(ctx, "cleanup", func(context.Context, *schedlock.Run) error { close(runs); <-end; return nil }, schedlock.Every(time.Minute))
		ended <- err
	}()
	<-runs
	store, err := idempotency.NewStore(sess, "orders", nil)
	require.NoError(t, err)
	_, _, err = store.Begin(ctx, idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}, nil)
	require.NoError(t, err)

	name := fmt.Sprintf("%016x", sess.Lease())
	path := "/process?name=" + name
	body := ""
	require.Eventually(t, func() bool {
		body = s.page(path)
		return strings.Contains(body, "has the job") && strings.Contains(body, "active run of the job")
	}, testkit.Soon, 50*time.Millisecond)
	for _, text := range []string{"web-7", `<code class="copied">` + name + "</code>", fmt.Sprint(int64(sess.Lease())), "<dt>TTL</dt>", "Last renewal", "free at <time", "Holds 2<", "Waits 1<",
		"order 12", "order 13", fmt.Sprint(held.Token()), "semaphore/charge", ">limiter/api<", "invoices", "cleanup", "attempt in the store orders"} {
		require.Contains(t, body, text)
	}
	require.NotContains(t, body, "limiter/api/acme", "its permit is held in the total, and counts once")
	require.Contains(t, s.page("/sessions"), `<a href="process?name=`+name+`"><bdi>web-7</bdi></a>`)
	require.Regexp(t, `name=`+name+`"><bdi>web-7</bdi></a></th><td data-th="Holds" class="n">2</td><td data-th="Waits" class="n">1</td>`, s.page("/sessions"))
	require.Contains(t, s.page("/queue?name=semaphore/charge"), `<a href="process?name=`+name+`"><bdi>web-7</bdi></a>`)
	for _, bad := range []string{"7", strings.ToUpper(name) + "x", "0" + name, "0000000000000000", "x"} {
		require.Equal(t, http.StatusBadRequest, s.get("/process?name="+bad).StatusCode, bad)
	}
	require.Equal(t, http.StatusNotFound, s.get("/process?name=0000000000000007").StatusCode)
	close(end)
	require.NoError(t, <-ended)
	_, err = s.etcd.Revoke(ctx, sess.Lease())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.get(path).StatusCode == http.StatusNotFound }, testkit.Soon, 50*time.Millisecond, "it has ended")
}

// A796: the page of a process and the list of processes have the versions that it was built from, as far as its presence key
// has them: that of a release without them, and that of a build from a folder, show none.
func TestVersionsOfProcesses(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	sess := s.session("web-3")
	space, err := keyspace.New(s.Root, "test")
	require.NoError(t, err)
	present := func(of record.Session) (page string) {
		lease, err := s.etcd.Grant(testkit.Context(t), 600)
		require.NoError(t, err)
		_, err = s.etcd.Put(testkit.Context(t), space.Session(int64(lease.ID)).Alive(), of.Encode(), clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		return fmt.Sprintf("/process?name=%016x", lease.ID)
	}
	shop := present(record.Session{Owner: "web-1", AtMS: 1, Etcdkit: "v0.2.0", Program: "example.com/shop@v1.4.2"})
	folder := present(record.Session{Owner: "web-2", AtMS: 2, Etcdkit: "v0.1.0"})
	strange := present(record.Session{Owner: "web-4", AtMS: 3, Etcdkit: "<b>\u202e", Program: "<i>"})
	for i, version := range []string{"v0.0.0-20261201041454-ab29ae832877", "v1.4.3-0.20261201041454-ab29ae832878", "v1.4.3-rc.1.0.20261201041454-ab29ae832879+dirty"} {
		present(record.Session{Owner: fmt.Sprint("ci-", i), AtMS: 3, Program: "example.com/shop@" + version})
	}
	require.Eventually(t, func() bool { return strings.Contains(s.page("/sessions"), "ci-2") }, testkit.Soon, 50*time.Millisecond)

	require.Contains(t, s.page(shop), "<dt>Program</dt><dd><bdi>example.com/shop@v1.4.2</bdi></dd>\n<dt>Version of etcdkit</dt><dd><bdi>v0.2.0</bdi></dd>")
	require.Contains(t, s.page(folder), "<dt>Version of etcdkit</dt><dd><bdi>v0.1.0</bdi></dd>")
	require.NotContains(t, s.page(folder), "<dt>Program")
	require.NotContains(t, s.page(fmt.Sprintf("/process?name=%016x", sess.Lease())), "Version of etcdkit")
	require.Contains(t, s.page(strange), "<bdi>&lt;b&gt;")
	require.NotContains(t, s.page(strange), "\u202e")

	list := s.page("/sessions")
	for owner, version := range map[string]string{"web-1": "<bdi>v1.4.2</bdi>", "web-2": "<bdi>etcdkit v0.1.0</bdi>", "web-3": "",
		"ci-0": "<bdi>ab29ae832877</bdi>", "ci-1": "<bdi>ab29ae832878</bdi>", "ci-2": "<bdi>ab29ae832879&#43;dirty</bdi>"} {
		require.Regexp(t, `<bdi>`+owner+`</bdi>.*<td data-th="Version">`+regexp.QuoteMeta(version)+`</td>`, list)
	}
	require.Less(t, strings.Index(s.page("/sessions?sort=version"), "<bdi>web-2</bdi>"), strings.Index(s.page("/sessions?sort=version"), "<bdi>web-1</bdi>"))
	require.Contains(t, s.page("/doctor"), "etcdkit &lt;b&gt;")
}

// A rate has a page: what it allows, by interval, and what each process has of it. It offers no action that it would
// refuse.
func TestRate(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	sess := s.session("web-7")
	for name, perSecond := range map[string]float64{"sms": 20, "letters": 0.5} {
		l, err := concurrency.NewRateLimiter(sess, name, concurrency.Rate{PerSecond: perSecond, Burst: 20}, nil)
		require.NoError(t, err)
		require.NoError(t, l.Wait(ctx))
	}
	require.Contains(t, s.page("/queues"), `<a href="queue?name=rate%2fsms"><bdi>rate/sms</bdi></a>`)
	body := s.page("/queue?name=rate/sms")
	require.Contains(t, body, "Allows 20 per second for all processes together, with a burst of 20, in 20 shares")
	require.Regexp(t, `<bdi>web-7</bdi></a></th><td data-th="Shares" class="cells n"><svg[^>]*><rect[^>]*/></svg>\d+</td><td data-th="May take">\d+ per second</td>`, body)
	require.Contains(t, s.page("/queue?name=rate/letters"), "Allows 30 per minute")
	require.Contains(t, s.page("/queue?name=rate/none"), "etcd has nothing of a rate of this name")
	for _, path := range []string{"/queue?name=rate/sms", "/queue?name=rate/none", "/queues"} {
		require.NotContains(t, s.page(path), "confirm?", path)
	}
	token := regexp.MustCompile(`process\?name=[0-9a-f]{16}`)
	require.Regexp(t, token, body)
	require.Equal(t, http.StatusBadRequest, s.get("/confirm?do=set-limit&name=rate/sms").StatusCode)
}
