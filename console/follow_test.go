package console_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// following counts the watches of consoles.
func following() int {
	b := make([]byte, 16<<20)
	return bytes.Count(b[:runtime.Stack(b, true)], []byte("fleet.(*Fleet).Run("))
}

// A console follows its namespace by one watch while pages are read, however many read them, and by none
// otherwise. The first reader after that sees what has changed meanwhile.
func TestFollowsForViewersOnly(t *testing.T) {
	require.Eventually(t, func() bool { return following() == 0 }, testkit.Soon, 50*time.Millisecond, "other tests have ended")
	s := open(t, "", nil)
	s.acquire(s.semaphore("web-7", "charge", 3))
	require.Zero(t, following(), "no page was read")
	require.Contains(t, s.page("/"), "semaphore/charge")
	s.page("/jobs")
	s.page("/elections")
	require.Equal(t, 1, following())

	brief := open(t, "", nil)
	console.SetUnseen(brief.handler, time.Second)
	require.Eventually(t, func() bool { brief.page("/"); return following() == 2 }, testkit.Soon, 50*time.Millisecond)
	require.Eventually(t, func() bool { return following() == 1 }, testkit.Soon, 50*time.Millisecond)
	brief.acquire(brief.semaphore("web-7", "refund", 3))
	require.Contains(t, brief.page("/"), "semaphore/refund")
}

// Of a namespace that etcd does not confirm, the last state is shown, and that it is not confirmed; nothing is
// shown of one that was never read. Both end by themselves.
func TestNotConfirmed(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	s.acquire(s.semaphore("web-7", "charge", 3))
	s.etcd.Cut()
	first := s.get("/")
	require.Equal(t, http.StatusBadGateway, first.StatusCode)
	require.Contains(t, first.body, "was not read yet")
	require.Contains(t, first.body, "data-live", "the page is read again")
	s.etcd.Heal()
	shown := func(path, text string) func() bool {
		return func() bool { a := s.get(path); return a.StatusCode == http.StatusOK && strings.Contains(a.body, text) }
	}
	require.Eventually(t, shown("/", "semaphore/charge"), testkit.Soon, 50*time.Millisecond)
	require.NotContains(t, s.page("/"), "Not confirmed")
	tag := s.get("/").Header.Get("ETag")
	s.etcd.Cut()
	require.Eventually(t, shown("/", "Not confirmed: etcd has not answered since"), testkit.Soon, 50*time.Millisecond)
	stale := s.get("/")
	require.Contains(t, stale.body, "semaphore/charge", "the last state")
	require.NotEqual(t, tag, stale.Header.Get("ETag"), "that it is not confirmed is a change of the page")
	s.etcd.Heal()
	require.Eventually(t, func() bool { return !strings.Contains(s.page("/"), "Not confirmed") }, testkit.Soon, 50*time.Millisecond)
}

// Pages that read etcd show what was read last, too. The doctor tells the outage, and soon that it is over.
func TestPagesDuringAnOutage(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	s.acquire(s.semaphore("web-7", "charge", 3))
	s.lose("orders", "K-1")
	s.acquire(s.semaphore("web-8", "refund", 3))
	pages := map[string]string{"/queue?name=semaphore/charge": "web-7", "/store?name=orders": "POST /payments", "/": "semaphore/charge", "/doctor": "a majority answers reads in"}
	for path, text := range pages {
		require.Contains(t, s.page(path), text)
	}
	s.etcd.BlackHole()
	delete(pages, "/doctor")
	for path, text := range pages {
		require.Eventually(t, func() bool { return strings.Contains(s.page(path), "Not confirmed: etcd has not answered since") }, testkit.Soon, 50*time.Millisecond, path)
		require.Contains(t, s.page(path), text)
	}
	require.Eventually(t, func() bool { // no viewer had opened it
		a := s.get("/queue?name=semaphore/refund")
		return a.StatusCode == http.StatusOK && strings.Contains(a.body, "web-8") && strings.Contains(a.body, "Not confirmed: etcd has not answered since")
	}, testkit.Soon, 50*time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(s.page("/doctor"), "a read failed") }, testkit.Soon, 50*time.Millisecond)
	s.etcd.Heal()
	for path := range pages {
		require.Eventually(t, func() bool { return !strings.Contains(s.page(path), "Not confirmed") }, testkit.Soon, 50*time.Millisecond, path)
	}
	require.Eventually(t, func() bool { return strings.Contains(s.page("/doctor"), "a majority answers reads in") }, testkit.Soon, 50*time.Millisecond)
}

// A member that accepts connections and says nothing does not make the others look as if they did not answer.
func TestDoctorWithAMemberThatHangs(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer lis.Close()
	s := open(t, "", nil)
	good := s.etcd.Endpoints()[0]
	s.etcd.SetEndpoints("http://"+lis.Addr().String(), good)
	defer s.etcd.SetEndpoints(good)
	body := s.page("/doctor")
	require.Contains(t, body, good+": etcd 3.")
	require.Equal(t, 1, strings.Count(body, "The member is down or cut off"))
}

// What does not exist is not shown as if it were calm.
func TestUnusedNames(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	require.Contains(t, s.page("/"), "No service has used this namespace")
	require.Contains(t, s.page("/queue?name=semaphore/charge"), "etcd has nothing of a queue of this name")
	require.Contains(t, s.page("/store?name=orders"), "etcd has nothing of a store of this name")
	require.Contains(t, s.page("/queue?name=limiter/api"), "etcd has nothing of a limiter of this name")
	for _, name := range []string{"mutex/report", "election/shard"} {
		require.Contains(t, s.page("/queue?name="+name), "an idle one and a misspelt name look the same")
	}
	s.acquire(s.semaphore("web-7", "charge", 3))
	require.Eventually(t, func() bool { return !strings.Contains(s.page("/"), "No service has used") }, testkit.Soon, 50*time.Millisecond)
	require.Eventually(t, func() bool { return !strings.Contains(s.page("/queue?name=semaphore/charge"), "etcd has nothing") }, testkit.Soon, 50*time.Millisecond)
}

// The console's own session is marked, and one without a lease says that it has none.
func TestOwnSession(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	require.Regexp(t, `<bdi>console</bdi></a> \(this console\)`, s.page("/sessions"))
	sess, err := concurrency.NewSession(engine.Leaseless(testkit.Context(t)), s.NewClient(t, nil).Client, "test", &concurrency.SessionOptions{Prefix: s.Root})
	require.NoError(t, err)
	h, err := console.Handler(sess, nil)
	require.NoError(t, err)
	read := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil))
		return w
	}
	body := read("/sessions").Body.String()
	require.Contains(t, body, "<bdi>console</bdi>")
	require.NotContains(t, body, "this console)")
	require.Contains(t, body, "this console has none.")
	require.NoError(t, sess.Close(testkit.Context(t)))
}

// A console whose session has no lease, as that of the command, leaves nothing in etcd by being looked at, and makes actions
// (A319 in internal/proof/tested-failures.md): those on runs, limits and requests have tests of their own on such a session.
func TestActionsWithoutALease(t *testing.T) {
	t.Parallel()
	s := openLeaseless(t, &console.Options{Authorize: all})
	for _, path := range console.LivePages() {
		require.Less(t, s.get("/"+path).StatusCode, http.StatusInternalServerError, path)
	}
	require.Empty(t, s.Keys(""))

	sess := s.session("web-7")
	m, err := concurrency.NewMutex(sess, "report")
	require.NoError(t, err)
	p, err := m.Lock(testkit.Context(t))
	require.NoError(t, err)
	token := fmt.Sprint(p.Token())
	s.job("invoices", nil)
	for _, form := range [][]string{{"request-stop", "mutex/report", token}, {"evict", "mutex/report", token}, {"pause", "invoices", ""}, {"resume", "invoices", ""}} {
		s.followed(s.submit(form[0], form[1], form[2]))
	}
	testkit.Closed(t, p.Context().Done(), "it is evicted")
	s.followed(s.submit("end-session", fmt.Sprintf("%016x", sess.Lease()), ""))
	require.Len(t, s.Keys("/change/"), 5)
}
